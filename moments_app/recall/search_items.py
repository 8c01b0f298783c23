"""Find stored items with text search and semantic search, and list their namespaces."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from django.db import connection

from moments_app.models.stored_item import AFTER_END, END, LABELS_MAX, Condition, labels, namespace_range, stored
from moments_app.recall.request import MAX_WORDS, Vector
from sessions_app import lexemes
from sessions_app.database.sql import array_of, array_of_texts
from sessions_app.models import UserProfile

ANY_LABEL = "*"  # matches any label in a list of namespaces
MAX_HITS = 500  # maximum hits per search
RANK_OFFSET = 60  # larger values reduce the differences between the first ranks

_BY_WORDS_SQL = """
SELECT 'text' AS search, found, score, place FROM search_moments_app_storeditem(%(user)s, %(application)s, %(first)s,
    %(beyond)s, %(words)s, %(queries)s, %(weights)s, %(conditions)s, %(most)s)
    WITH ORDINALITY AS result (found, score, place)
"""
_BY_MEANING_SQL = """
SELECT 'semantic' AS search, found, score, place FROM nearest_moments_app_itemembedding(%(user)s, %(application)s,
    %(first)s, %(beyond)s, %(conditions)s, %(model)s, %(dimensions)s, %(vector)s, %(most)s)
    WITH ORDINALITY AS result (found, score, place)
"""


def search_items(
    user: UserProfile | None,
    application: int,
    prefix: Sequence[str],
    query: str,
    *,
    vector: Vector | None = None,
    conditions: Sequence[Condition] = (),
    most: int,
) -> dict[int, float]:
    """Return the primary keys of items with their scores, best first. Runs one query.

    Args:
        user: the owner of the items; None: items without an owner.
        application: the primary key of the application that owns the items.
        prefix: the first labels of the items' namespaces.
        query: the words to search for. An item matches if it contains any of them.
        conditions: filters on the items, as in `StoredItemQuerySet.fitting`.
    """
    words = lexemes.words_of_query(query, MAX_WORDS)
    queries = [" | ".join(f"'{stem}'" for stem in word.stems) for word in words]
    first, beyond = namespace_range(prefix)
    parameters: dict[str, Any] = {
        "user": user.pk if user else None,
        "application": application,
        "first": first,
        "beyond": beyond,
        "words": " | ".join(queries),
        "queries": array_of_texts(queries),
        "weights": array_of(word.factor for word in words),
        "conditions": json.dumps(conditions) if conditions else None,
        "most": MAX_HITS,
    }
    searches = [_BY_WORDS_SQL] if words else []
    if vector:
        searches.append(_BY_MEANING_SQL)
        parameters |= {"model": vector.model, "dimensions": vector.dimensions, "vector": vector.text}
    if not searches:
        return {}
    rankings: dict[str, dict[int, float]] = {"text": {}, "semantic": {}}
    with connection.cursor() as cursor:
        cursor.execute(f"{' UNION ALL '.join(searches)} ORDER BY search, place", parameters)
        for search, found, score, _place in cursor:
            rankings[search][found] = score
    scores = _reciprocal_ranks(*rankings.values()) if vector else rankings["text"]
    return dict(islice(scores.items(), min(most, MAX_HITS)))


def _reciprocal_ranks(*rankings: Iterable[int]) -> dict[int, float]:
    """Merge rankings with reciprocal rank fusion (Cormack et al., 2009), best first."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, key in enumerate(ranking, start=RANK_OFFSET + 1):
            scores[key] += 1 / rank
    return {key: scores[key] for key in sorted(scores, key=lambda key: -scores[key])}


# Reads one item of each namespace and skips to the next namespace. If `depth` is smaller than the number of labels,
# reads one item for all namespaces with the same first `depth` labels.
_NAMESPACES_SQL = """
WITH RECURSIVE item AS NOT MATERIALIZED (
    SELECT user_id, application_id, namespace FROM moments_app_storeditem
    WHERE application_id = %(application)s AND {owner} AND namespace < %(end)s
        AND (expires_at IS NULL OR expires_at > statement_timestamp())
), found AS (
    (
        SELECT substring(namespace, %(cut)s) AS place FROM item WHERE namespace >= %(start)s
        ORDER BY user_id, application_id, namespace LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT substring(namespace, %(cut)s) FROM item
        WHERE namespace > CASE WHEN length(place) - length(replace(place, %(label_end)s, '')) < %(depth)s THEN place
            ELSE left(place, -1) || %(after_end)s END
        ORDER BY user_id, application_id, namespace LIMIT 1
    ) FROM found WHERE place IS NOT NULL
)
SELECT place FROM found WHERE place ~ %(first)s AND place ~ %(last)s LIMIT %(most)s
"""


def list_namespaces(
    user: UserProfile | None,
    application: int,
    *,
    prefix: Sequence[str] = (),
    suffix: Sequence[str] = (),
    max_depth: int = LABELS_MAX,
    most: int,
) -> list[str]:
    """Return the distinct namespaces of items, sorted, in their stored form.

    Args:
        prefix, suffix: the first and the last labels of each namespace; `*` stands for any label.
        max_depth: the number of labels to which longer namespaces are truncated.
    """
    is_cut = not suffix and len(prefix) <= max_depth  # only if no label after the cut has to match
    depth = max_depth if is_cut else LABELS_MAX
    start, end = namespace_range(prefix[: prefix.index(ANY_LABEL)] if ANY_LABEL in prefix else prefix)
    values = {
        "application": application,
        "user": user.pk if user else None,
        "start": start,
        "end": end,
        "cut": f"^(?:[^{END}]*{END}){{1,{depth}}}",
        "label_end": END,
        "after_end": AFTER_END,
        "depth": depth,
        "first": f"^{_pattern(prefix)}",
        "last": f"(^|{END}){_pattern(suffix)}$" if suffix else "",
        "most": most if is_cut else None,
    }
    sql = _NAMESPACES_SQL.format(owner="user_id = %(user)s" if user else "user_id IS NULL")
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        found = dict.fromkeys(stored(labels(place)[:max_depth]) for (place,) in cursor)
    return list(found)[:most]


def _pattern(path: Sequence[str]) -> str:
    return "".join((f"[^{END}]+" if label == ANY_LABEL else re.escape(label)) + END for label in path)
