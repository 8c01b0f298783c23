"""What several people said alike in a shard, each in words of their own.

Two candidates are alike when their vectors are near each other, or, where one has none, when they share most of their
words; and when both say that something is to be or both that it is not. A group is of one shard and agent, and each in
it is alike to each other one: a chain of neighbors would lead from one thing to quite another.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q
from django.utils import timezone

from moments_app.models import EmbeddingModel, FactEmbedding, MemoryAtom, MemoryStream, Release
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.streams.impersonal import SOURCE_PROBLEMS
from moments_app.streams.release import agent_of
from sessions_app.lexemes import stems_in

NEW = 100  # candidates that are put into groups at a time
COMPARED = 1_000  # candidates in groups that they are compared with: the newest, and the newest that were decided on
WAIT = timedelta(hours=1)  # for the vector of a candidate

_NO = re.compile(r"\b(?:no|not|never|nothing|none|without|stop|avoid|\w+n['’]t)\b", re.I)
# Each new vector with each other one, by their keys: at most 210,000 distances, of some microseconds each.
_NEAR_SQL = """
SELECT one.source_id, other.source_id
FROM moments_app_factembedding one JOIN moments_app_factembedding other ON other.model_id = one.model_id
WHERE one.model_id = %(model)s AND one.source_id = ANY(%(new)s) AND other.source_id = ANY(%(compared)s)
AND (one.vector <=> other.vector) <= %(most)s
"""


@dataclass(frozen=True)
class Candidate:
    """A candidate as it is compared.

    Args:
        pk: of its row.
        agent_id: to whose users it could be released.
        stems: of its words.
        denies: it says what is not, or not to be.
        alike: the group that it is in.
    """

    pk: int
    agent_id: str
    stems: frozenset[str]
    denies: bool
    alike: int | None


@dataclass(frozen=True)
class Nearness:
    """What the vectors of some candidates say.

    Args:
        known: primary keys of those that have one.
        pairs: of which the vectors are near each other; the first of each is new.
    """

    known: frozenset[int] = frozenset()
    pairs: frozenset[tuple[int, int]] = frozenset()


def are_alike(one: Candidate, other: Candidate, near: Nearness) -> bool:
    """Tell whether a new candidate and another one say the same."""
    if one.agent_id != other.agent_id or one.denies != other.denies:
        return False
    if one.pk in near.known and other.pk in near.known:
        return (one.pk, other.pk) in near.pairs
    return share_words(one.stems, other.stems)


def share_words(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether two texts have most of their words in common."""
    return len(one & other) >= settings.SHARING.shared_words * max(len(one | other), 1)


def groups_of(new: Sequence[Candidate], known: Iterable[Candidate], near: Nearness) -> dict[int, int]:
    """Return the group of each new candidate: the first in which all are alike to it, or one of its own."""
    groups: dict[int, list[Candidate]] = {}
    for one in known:
        groups.setdefault(cast(int, one.alike), []).append(one)
    found = {}
    for one in new:
        fitting = (group for group, members in groups.items() if all(are_alike(one, other, near) for other in members))
        found[one.pk] = group = next(fitting, one.pk)
        groups.setdefault(group, []).append(one)
    return found


# --- rows ---


def to_group(stream: MemoryStream) -> MemoryAtomQuerySet:
    """Return a shard's candidates that are in no group yet; those that wait for a vector come later.

    What operators said as test people is nobody's, and counts for no rule.
    """
    there = MemoryAtom.objects.active().candidates().filter(stream=stream, alike=None, user__is_test=False)
    if settings.EMBEDDING.is_on:
        has_vector = Q(pk__in=FactEmbedding.objects.filter(model__is_active=True).values("source"))
        there = there.filter(has_vector | Q(created_at__lt=timezone.now() - WAIT))
    return there.order_by("pk")


def shards_to_group() -> list[MemoryStream]:
    """Return the shards that have such candidates."""
    waiting = MemoryAtom.objects.active().candidates().filter(alike=None, user__is_test=False).values("stream")
    return [shard for shard in MemoryStream.objects.filter(pk__in=waiting) if to_group(shard).exists()]


def in_groups(stream: MemoryStream) -> MemoryAtomQuerySet:
    """Return a shard's candidates that new ones are compared with."""
    grouped = MemoryAtom.objects.candidates().filter(stream=stream, alike__isnull=False).order_by("-pk")
    decided = grouped.filter(Q(reviewed_at__isnull=False) | ~Q(left_to_operator=""))
    newest = (these.values("pk")[:COMPARED] for these in (grouped, decided))
    return MemoryAtom.objects.filter(pk__in=[row["pk"] for rows in newest for row in rows])


def compared(atoms: MemoryAtomQuerySet) -> list[Candidate]:
    """Return candidates as they are compared, oldest first."""
    return [
        Candidate(atom.pk, agent_of(atom), stems_in(atom.content), bool(_NO.search(atom.content)), atom.alike)
        for atom in atoms.select_related("stream", "source_session").order_by("pk")
    ]


def nearness(new: Sequence[Candidate], known: Sequence[Candidate]) -> Nearness:
    """Return what the vectors of candidates say, where there are any."""
    model = EmbeddingModel.objects.active().first()
    if model is None:
        return Nearness()
    pks = [one.pk for one in (*new, *known)]
    has_vector = FactEmbedding.objects.filter(source__in=pks, model=model, vector__isnull=False)
    values: dict[str, Any] = {"model": model.pk, "new": [one.pk for one in new], "compared": pks}
    values["most"] = 1 - settings.SHARING.similarity
    with connection.cursor() as cursor:
        cursor.execute(_NEAR_SQL, values)
        pairs = frozenset((one, other) for one, other in cursor.fetchall())
    return Nearness(frozenset(has_vector.values_list("source_id", flat=True)), pairs)


# --- groups ---


def ready(stream: MemoryStream) -> list[int]:
    """Return a shard's groups that enough people are in and nobody has decided on, the first first."""
    grouped = MemoryAtom.objects.candidates().filter(stream=stream, alike__isnull=False)
    closed = ~Q(left_to_operator="") & ~Q(left_to_operator__in=SOURCE_PROBLEMS)
    decided = grouped.filter(Q(reviewed_at__isnull=False) | closed).values("alike")
    waiting = undecided().filter(stream=stream, alike__isnull=False).exclude(alike__in=decided)
    groups = waiting.order_by().values("alike").annotate(people=Count("user", distinct=True))
    enough = groups.filter(people__gte=settings.SHARING.people).order_by("alike")
    return [group["alike"] for group in enough if group["alike"] is not None]


def members(group: int) -> MemoryAtomQuerySet:
    """Return the candidates of a group that count."""
    return undecided().filter(alike=group).select_related("stream", "source_session", "user").order_by("pk")


def undecided() -> MemoryAtomQuerySet:
    """Return the candidates that neither an operator nor the rule has decided on."""
    return MemoryAtom.objects.to_review().filter(left_to_operator="")


def is_revoked(wording: str, said: MemoryAtom) -> bool:
    """Tell whether an operator has taken back from an agent's users what says much the same as a wording."""
    shards = {"stream__name": said.stream.name, "stream__agent_id": agent_of(said)}
    revoked = Release.objects.filter(revoked_by__startswith="operator:", **shards).order_by("-pk")
    wordings = revoked.values_list("wording", flat=True)[:COMPARED]
    return any(share_words(stems_in(wording), stems_in(one)) for one in wordings)
