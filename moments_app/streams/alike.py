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

import numpy as np
from django.conf import settings
from django.db.models import Count, Q
from django.utils import timezone

from moments_app.models import EmbeddingModel, FactEmbedding, MemoryAtom, MemoryStream
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.streams.impersonal import SOURCE_PROBLEMS
from moments_app.streams.release import agent_of
from sessions_app.lexemes import stems_in

NEW = 200  # candidates that are put into groups at a time
COMPARED = 2_000  # candidates in groups, the newest, that they are compared with
WAIT = timedelta(hours=1)  # for the vector of a candidate

Vector = np.ndarray[Any, np.dtype[np.float32]]

_NO = re.compile(r"\b(?:no|not|never|nothing|none|without|stop|avoid|\w+n['’]t)\b", re.I)


@dataclass(frozen=True)
class Candidate:
    """A candidate as it is compared.

    Args:
        pk: of its row.
        agent_id: to whose users it could be released.
        stems: of its words.
        denies: it says what is not, or not to be.
        vector: of length 1; None: it has none.
        alike: the group that it is in.
    """

    pk: int
    agent_id: str
    stems: frozenset[str]
    denies: bool
    vector: Vector | None
    alike: int | None


def are_alike(one: Candidate, other: Candidate) -> bool:
    """Tell whether two candidates say the same."""
    if one.agent_id != other.agent_id or one.denies != other.denies:
        return False
    if one.vector is not None and other.vector is not None:
        return float(one.vector @ other.vector) >= settings.SHARING.similarity
    return len(one.stems & other.stems) >= settings.SHARING.shared_words * max(len(one.stems | other.stems), 1)


def groups_of(new: Sequence[Candidate], known: Iterable[Candidate]) -> dict[int, int]:
    """Return the group of each new candidate: the first in which all are alike to it, or one of its own."""
    groups: dict[int, list[Candidate]] = {}
    for one in known:
        groups.setdefault(cast(int, one.alike), []).append(one)
    found = {}
    for one in new:
        fitting = (group for group, members in groups.items() if all(are_alike(one, other) for other in members))
        found[one.pk] = group = next(fitting, one.pk)
        groups.setdefault(group, []).append(one)
    return found


# --- rows ---


def to_group(stream: MemoryStream) -> MemoryAtomQuerySet:
    """Return a shard's candidates that are in no group yet; those that wait for a vector come later."""
    there = MemoryAtom.objects.active().candidates().filter(stream=stream, alike=None)
    if settings.EMBEDDING.is_on:
        has_vector = Q(pk__in=FactEmbedding.objects.filter(model__is_active=True).values("source"))
        there = there.filter(has_vector | Q(created_at__lt=timezone.now() - WAIT))
    return there.order_by("pk")


def shards_to_group() -> list[MemoryStream]:
    """Return the shards that have such candidates."""
    waiting = MemoryAtom.objects.active().candidates().filter(alike=None).values("stream")
    return [shard for shard in MemoryStream.objects.filter(pk__in=waiting) if to_group(shard).exists()]


def compared(atoms: MemoryAtomQuerySet) -> list[Candidate]:
    """Return candidates as they are compared, oldest first."""
    found = list(atoms.select_related("stream", "source_session").order_by("pk"))
    vectors = _vectors([atom.pk for atom in found])
    return [
        Candidate(
            atom.pk,
            agent_of(atom),
            stems_in(atom.content),
            bool(_NO.search(atom.content)),
            vectors.get(atom.pk),
            atom.alike,
        )
        for atom in found
    ]


def _vectors(pks: Sequence[int]) -> dict[int, Vector]:
    model = EmbeddingModel.objects.active().first()
    rows = FactEmbedding.objects.filter(source__in=pks, model=model, vector__isnull=False) if model else ()
    return {row.source_id: _unit(row.vector) for row in rows}


def _unit(vector: Sequence[float]) -> Vector:
    wide: Vector = np.asarray(vector, np.float32)
    return wide / max(float(np.linalg.norm(wide)), 1e-9)


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
