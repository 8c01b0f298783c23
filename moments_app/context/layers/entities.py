"""`entities`: open tasks, goals and problems, the most relevant first.

The score is the sum of three parts: how recently the entity changed before the session's last activity, with a
half-life of seven days; how few links separate it from an entity of the session or the query (1 / (1 + hops), up to two
hops); and how well its words match the query's (0 to 1).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.models.atom import ENTITIES
from moments_app.models.entity import OPEN_SQL
from moments_app.recall.request import MAX_WORDS
from sessions_app import lexemes

HALF_LIFE_DAYS = 7.0
MAX_HOPS = 2
RECENT = 500  # most recently changed candidates; a search finds older ones as facts
MOST = 25
BODY_CHARS = 1_000

# Finds the newest by the index of a person's entities, and neighbors by the two indexes of links.
_CANDIDATES_SQL = """
WITH recent AS MATERIALIZED (
    SELECT id, atom_id, kind, left(content, %(chars)s) AS text, due_at, formed_at, source_session_id,
        CASE WHEN search_vector @@ %(words)s::tsquery THEN ts_rank(search_vector, %(words)s::tsquery) * %(forms)s END
        AS rank
    FROM moments_app_memoryatom WHERE user_id = %(user)s AND {open_entities}
    ORDER BY GREATEST(formed_at, ended_at) DESC, id DESC LIMIT %(recent)s
)
SELECT e.id, e.atom_id, e.kind, e.text, e.due_at, e.formed_at,
    e.source_session_id IS NOT DISTINCT FROM %(session)s, rank / (rank + 1),
    ARRAY(
        SELECT to_entity_id FROM moments_app_entitylink WHERE from_entity_id = e.id AND user_id = %(user)s
        UNION SELECT from_entity_id FROM moments_app_entitylink WHERE to_entity_id = e.id AND user_id = %(user)s
    )
FROM recent e
"""


@dataclass(frozen=True)
class Candidate:
    """An entity and the data for its score.

    Args:
        pk, entity_id, kind, due_at, updated_at: as in the model.
        text: the beginning of its title and body.
        is_here: whether it came up in this session.
        match: the rank of its words, 0 to 1; None if it shares no words with the query.
        neighbours: primary keys of the entities it is linked to, in either direction.
    """

    pk: int
    entity_id: UUID
    kind: str
    text: str
    due_at: datetime | None
    updated_at: datetime
    is_here: bool
    match: float | None
    neighbours: list[int]

    def score(self, activity: datetime, hops: Mapping[int, int]) -> float:
        """Return the score as described in the module's docstring. `activity` is the session's last activity."""
        days = max((activity - self.updated_at).total_seconds() / 86_400, 0.0)
        recency: float = 0.5 ** (days / HALF_LIFE_DAYS)
        proximity = 1 / (1 + hops[self.pk]) if self.pk in hops else 0.0
        return recency + proximity + (self.match or 0.0)

    def item(self) -> Item:
        title, _, body = self.text.partition("\n")
        due = f" (due {self.due_at:%Y-%m-%d})" if self.due_at else ""
        text = f"[{self.kind}] {title}{due}{f': {body}' if body else ''}"
        return Item(text, ref=f"{ENTITIES}{self.entity_id}", time=self.updated_at)


def items(source: ContextInput) -> Sequence[Item]:
    candidates = _candidates(source) if source.has_entities else []
    hops = _hops(candidates)
    activity = source.session.last_activity_at
    best = sorted(candidates, key=lambda candidate: (-candidate.score(activity, hops), -candidate.pk))
    return [candidate.item() for candidate in best[:MOST]]


def _candidates(source: ContextInput) -> list[Candidate]:
    words, forms = lexemes.any_word_query(source.query, MAX_WORDS)
    parameters: dict[str, int | float | str] = {
        "user": source.user.pk,
        "session": source.session.pk,
        "words": words,
        "forms": forms,
        "recent": RECENT,
        "chars": BODY_CHARS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_CANDIDATES_SQL.format(open_entities=OPEN_SQL), parameters)
        return [Candidate(*row) for row in cursor]


def _hops(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Return a dict of each candidate to the number of links to the nearest entity of the session or the query."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for one in candidates:
        for other in one.neighbours:
            neighbours[one.pk].add(other)
            neighbours[other].add(one.pk)
    reached = {one.pk for one in candidates if one.is_here or one.match is not None}
    hops = dict.fromkeys(reached, 0)
    for distance in range(1, MAX_HOPS + 1):
        reached = {other for pk in reached for other in neighbours.get(pk, ()) if other not in hops}
        hops |= dict.fromkeys(reached, distance)
    return hops


add_layer(
    Layer("entities", items, place=80, tag="OpenItems", title="Open tasks, goals and problems", ceiling=0.10, turn=5)
)
