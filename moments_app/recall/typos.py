"""What a mistyped word of a query may have meant, among the words that a person may find."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from rapidfuzz import process
from rapidfuzz.distance import OSA

from moments_app.recall.terms import Term, counts_by_kind

TYPO_FACTOR = 0.7  # of the weight a word has that may have been meant
MEANT = 3  # words at most that a mistyped one may stand for
NEWEST = 300  # turns that are looked through for what a mistyped word may have meant, where so much is not counted

_NEAR_SQL = """
SELECT stem, sum(facts)::bigint, sum(moments)::bigint, sum(turns)::bigint FROM ({known}) known
WHERE length(stem) = ANY(%(lengths)s) AND stem !~ '[0-9]'
GROUP BY stem
"""
_COUNTED_SQL = "SELECT stem, facts, moments, turns FROM moments_app_word WHERE vocabulary_id = ANY(%(vocabularies)s)"
_JUST_SAID_SQL = f"""
SELECT stem, 0, 0, 1 FROM (
    SELECT search_vector FROM sessions_app_message
    WHERE user_id = %(user)s AND kind = 'turn' AND role <> 'system' AND retracted_at IS NULL
    ORDER BY created_at DESC, id DESC LIMIT {NEWEST}
) turn, unnest(tsvector_to_array(search_vector)) stem
"""  # noqa: S608 (a number of our own)


def meant_terms(terms: Sequence[Term], *, user_id: int, vocabularies: Sequence[int], is_counted: bool) -> list[Term]:
    """Return the words that mistyped ones among `terms` may have meant; one statement at most.

    Args:
        terms: the words of a query.
        user_id: primary key of the person who asks.
        vocabularies: primary keys of those that the person may find words of.
        is_counted: most turns are counted; else the newest are looked through as well.
    """
    unknown = [term for term in terms if not term.is_known and _may_be_mistyped(term.word)]
    if not unknown:
        return []
    known = _COUNTED_SQL if is_counted else f"{_COUNTED_SQL} UNION ALL {_JUST_SAID_SQL}"
    near = _known_near(unknown, known, {"user": user_id, "vocabularies": vocabularies})
    return _meant(near, unknown, terms)


def _may_be_mistyped(word: str) -> bool:
    return len(word) >= 4 and word.isalpha()


def _known_near(unknown: Sequence[Term], known: str, parameters: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Return all stems about as long as those of some words, with their counts."""
    lengths = {len(stem) + edits for term in unknown for stem in term.all_stems for edits in _edits(_bare(stem))}
    with connection.cursor() as cursor:
        cursor.execute(_NEAR_SQL.format(known=known), {**parameters, "lengths": list(lengths)})
        return {stem: numbers for stem, *numbers in cursor}


def _meant(known: Mapping[str, Sequence[int]], unknown: Sequence[Term], said: Sequence[Term]) -> list[Term]:
    """Return the known words nearest to those that nothing has; of several equally near ones the most frequent.

    What a word may be indexed under is compared with known words of the same language. A word that was not counted, but
    has just been said, is no typo.
    """
    said_stems = {stem for term in said if term.is_known for stem in term.stems}
    by_language: dict[str, list[str]] = defaultdict(list)
    for stem in known:
        by_language[_language(stem)].append(stem)
    return [
        Term(_bare(stem), (stem,), counts_by_kind(known[stem]), TYPO_FACTOR, term.word)
        for term in unknown
        if known.keys().isdisjoint(term.all_stems)
        for stem in _nearest(term, by_language, known)
        if stem not in said_stems
    ]


def _nearest(term: Term, by_language: Mapping[str, list[str]], known: Mapping[str, Sequence[int]]) -> list[str]:
    near: dict[str, float] = {}
    for stem in term.all_stems:
        edits = _most_edits(_bare(stem))
        same = by_language.get(_language(stem), [])
        for found, distance, _ in process.extract(stem, same, scorer=OSA.distance, limit=None, score_cutoff=edits):
            near[found] = min(distance, near.get(found, distance))
    least = min(near.values(), default=0)
    nearest = [stem for stem, distance in near.items() if distance == least]
    return sorted(nearest, key=lambda stem: (-sum(known[stem]), stem))[:MEANT]


def _edits(stem: str) -> range:
    return range(-_most_edits(stem), _most_edits(stem) + 1)


def _most_edits(stem: str) -> int:
    """Return how far a word may be from what was meant: insertions, deletions, changes and swaps of neighbours."""
    return 1 if len(stem) < 8 else 2


def _language(stem: str) -> str:
    return stem.partition(":")[0] if ":" in stem else ""


def _bare(stem: str) -> str:
    """Return a stem without the mark of its language."""
    return stem.rpartition(":")[2]
