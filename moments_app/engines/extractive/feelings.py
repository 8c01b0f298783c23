"""Find feelings that people express as their own, except those that they deny or wish for someone."""

import re
from collections import Counter
from collections.abc import Iterable

from moments_app.engines.tables import any_of

FEELINGS = (
    "joy excitement gratitude pride relief hope worry frustration anger sadness disappointment exhaustion surprise"
).split()
MOST = 4
_BEFORE = 4  # maximum words between a negation and the feeling
_PATTERNS = {name: re.compile(rf"\b(?:{any_of(name)})\b", re.IGNORECASE) for name in FEELINGS}
_DENIED = re.compile(rf"\b(?:{any_of('negations')})\b(?:\W+\w+){{0,{_BEFORE}}}\W*$", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Ww]e|[Uu]s)\b|^(?:so|feeling|really|super|very|just)\b", re.IGNORECASE)


def feelings(sentences: Iterable[str]) -> list[str]:
    """Return the feelings in a speaker's sentences, most frequent first."""
    counts = Counter(name for sentence in sentences if _OWN.search(sentence) for name in _named(sentence))
    return [name for name, _count in counts.most_common(MOST)]


def _named(sentence: str) -> list[str]:
    found = ((name, pattern.search(sentence)) for name, pattern in _PATTERNS.items())
    return [name for name, match in found if match and not _is_denied(sentence, match.start())]


def _is_denied(sentence: str, start: int) -> bool:
    """Return whether a negation precedes a feeling closely, in the same clause."""
    clause = re.split(r"[,;:.!?–—]|\bbut\b", sentence[:start])[-1]
    # "Can't wait" and "can't believe" are no denials.
    return bool(_DENIED.search(clause))
