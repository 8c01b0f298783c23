"""`entities`: open tasks, goals and problems, the most relevant first.

A score adds up three things: how recently it changed (half-life seven days, counted back from the session's last
activity, so that the clock alone changes nothing), how near it is by links to what the session or the query is about
(1 / (1 + hops), up to two), and how well its words match the query's (0 to 1).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from django.conf import settings
from django.db import connection
from django.db.models import Q

from moments_app.models import Entity, EntityLink
from moments_app.recall.item import Item
from moments_app.recall.scene import Scene

STATIC = False
HALF_LIFE_DAYS = 7.0
MAX_HOPS = 2
RECENT = 100  # candidates by their last change; older ones have to match the query, or be linked to
MATCHING = 50
QUERY_CHARS = 2_000  # of the query that are searched for


def items(scene: Scene) -> Sequence[Item]:
    """The best, at most `MEMORY_CONTEXT__RELATED_ENTITIES_LIMIT`."""
    limit = settings.MEMORY_CONTEXT.related_entities_limit
    if not limit:
        return []
    matches = _matches(scene)
    candidates = _candidates(scene, matches)
    if not candidates:
        return []
    hops = _hops(scene, candidates, matches)
    scores = {pk: _score(scene, entity, hops, matches) for pk, entity in candidates.items()}
    best = sorted(candidates, key=lambda pk: (-scores[pk], -pk))[:limit]
    return [_item(candidates[pk]) for pk in best]


def _matches(scene: Scene) -> dict[int, float]:
    """Rank, 0 to 1, of open entities that share a word with the query."""
    if not scene.query:
        return {}
    with connection.cursor() as cursor:
        # By a function: under row security this alone can use the index of words.
        cursor.execute(
            "SELECT found, rank FROM search_moments_app_entity(%s, %s, %s, %s)",
            [scene.user.pk, scene.query[:QUERY_CHARS], Entity.Status.OPEN, MATCHING],
        )
        return dict(cursor.fetchall())


def _candidates(scene: Scene, matches: Mapping[int, float]) -> dict[int, Entity]:
    own = Entity.objects.for_user(scene.user).open().defer("search_vector")
    recent = own.latest_first()[:RECENT]
    matching = own.filter(pk__in=matches).order_by() if matches else own.none()
    return {entity.pk: entity for entity in [*recent, *matching]}


def _hops(scene: Scene, candidates: Mapping[int, Entity], matches: Mapping[int, float]) -> dict[int, int]:
    """Links between each candidate and the nearest that the session or the query is about."""
    about = {pk for pk, entity in candidates.items() if entity.source_session_id == scene.session.pk} | set(matches)
    hops = dict.fromkeys(about, 0)
    neighbours = _neighbours(scene, candidates) if about else {}
    reached: Collection[int] = about
    for distance in range(1, MAX_HOPS + 1):
        reached = {other for pk in reached for other in neighbours.get(pk, ()) if other not in hops}
        hops |= dict.fromkeys(reached, distance)
    return hops


def _neighbours(scene: Scene, candidates: Mapping[int, Entity]) -> dict[int, set[int]]:
    own = EntityLink.objects.filter(user=scene.user)
    links = own.filter(Q(from_entity__in=candidates) | Q(to_entity__in=candidates))
    neighbours: dict[int, set[int]] = defaultdict(set)
    for one, other in links.values_list("from_entity_id", "to_entity_id"):
        neighbours[one].add(other)
        neighbours[other].add(one)
    return neighbours


def _score(scene: Scene, entity: Entity, hops: Mapping[int, int], matches: Mapping[int, float]) -> float:
    days = max((scene.session.last_activity_at - entity.updated_at).total_seconds() / 86_400, 0.0)
    recency = 0.5 ** (days / HALF_LIFE_DAYS)
    proximity = 1 / (1 + hops[entity.pk]) if entity.pk in hops else 0.0
    return float(recency + proximity + matches.get(entity.pk, 0.0))


def _item(entity: Entity) -> Item:
    due = f" (due {entity.due_at:%Y-%m-%d})" if entity.due_at else ""
    body = f": {entity.body}" if entity.body else ""
    return Item(f"[{entity.kind}] {entity.title}{due}{body}", ref=entity.uri, time=entity.updated_at)
