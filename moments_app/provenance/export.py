"""What memory adds to a person's export."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from moments_app.models import (
    ContextReceipt,
    Entity,
    EntityLink,
    Job,
    MemoryAtom,
    MemoryStream,
    Moment,
    OwnText,
    Retraction,
    StreamVersion,
    Summary,
)
from moments_app.provenance import export_format as shapes
from sessions_app.models import Message, UserProfile
from sessions_app.people.export_format import Part, batched, rows_of

Rows = Iterator[dict[str, Any]]
OF_SESSION = {"session_id": "session__session_id"}
FROM_SESSION = {"session_id": "source_session__session_id"}


def _moments(user: UserProfile) -> Rows:
    return rows_of(Moment.objects.for_user(user).order_by("id"), shapes.MomentRow, **FROM_SESSION)


def _summaries(user: UserProfile) -> Rows:
    summaries = Summary.objects.filter(user=user).order_by("session_id", "id")
    lookups = OF_SESSION | {"number": "id", "base": "base_id", "source_sequences": "source_message_ids"}
    numbers = Numbers()
    for row in _with_sequences(rows_of(summaries, shapes.SummaryRow, **lookups), user):
        row["number"] = numbers.give(row["session_id"], row["number"])
        row["base"] = numbers.of(row["base"])
        yield row


def _streams(user: UserProfile) -> Rows:
    return rows_of(MemoryStream.objects.filter(user=user).order_by("id"), shapes.StreamRow, **OF_SESSION)


def _stream_versions(user: UserProfile) -> Rows:
    versions = StreamVersion.objects.filter(user=user).order_by("stream_id", "id")
    numbers = Numbers()
    for row in _with_atom_ids(
        rows_of(versions, shapes.StreamVersionRow, stream_id="stream__stream_id", number="id"), user
    ):
        yield row | {"number": numbers.give(row["stream_id"], row["number"])}


def _atoms(user: UserProfile) -> Rows:
    numbers = Numbers()
    versions = StreamVersion.objects.filter(user=user).order_by("stream_id", "id")
    for stream_id, version in versions.values_list("stream__stream_id", "id").iterator():
        numbers.give(stream_id, version)
    atoms = MemoryAtom.objects.filter(user=user).order_by("stream_id", "id")
    lookups = FROM_SESSION | {"stream_id": "stream__stream_id", "source_sequences": "source_message_ids"}
    for row in _with_sequences(rows_of(atoms, shapes.AtomRow, **lookups), user):
        yield row | {name: numbers.of(row[name]) for name in ("absorbed_in", "shown_in")}


def _shard_atoms(user: UserProfile) -> Rows:
    atoms = MemoryAtom.objects.in_shards_from(user).order_by("id")
    return rows_of(atoms, shapes.ShardAtomRow, shard="stream__name", agent_id="stream__agent_id")


def _own_texts(user: UserProfile) -> Rows:
    texts = OwnText.objects.filter(user=user).order_by("session_id", "sequence")
    return rows_of(texts, shapes.OwnTextRow, **OF_SESSION)


def _entities(user: UserProfile) -> Rows:
    return rows_of(Entity.objects.for_user(user).order_by("id"), shapes.EntityRow, **FROM_SESSION)


def _entity_links(user: UserProfile) -> Rows:
    lookups = {"from_entity": "from_entity__entity_id", "to_entity": "to_entity__entity_id"}
    return rows_of(EntityLink.objects.filter(user=user).order_by("id"), shapes.EntityLinkRow, **lookups)


def _receipts(user: UserProfile) -> Rows:
    return rows_of(ContextReceipt.objects.filter(user=user).order_by("id"), shapes.ReceiptRow, **OF_SESSION)


def _jobs(user: UserProfile) -> Rows:
    return rows_of(Job.objects.for_user(user).order_by("id"), shapes.JobRow, **OF_SESSION)


def _retractions(user: UserProfile) -> Rows:
    return rows_of(Retraction.objects.for_user(user).order_by("id"), shapes.RetractionRow, **OF_SESSION)


PARTS = [
    Part("moments", "remembered episodes; `previous_moment_keys` are those before, nearest first", _moments),
    Part("summaries", "the versions of each session's rolling summary", _summaries),
    Part("streams", "memory streams, each with its text", _streams),
    Part("stream_versions", "how the texts of streams were consolidated", _stream_versions),
    Part("atoms", "facts and observations in the streams", _atoms),
    Part("shard_atoms", "what agents learned from this person, in shards that all their users share", _shard_atoms),
    Part("own_texts", "which lines of turns were contexts sent back: no memory is made of them", _own_texts),
    Part("entities", "tasks, goals and problems", _entities),
    Part("entity_links", "how they hang together", _entity_links),
    Part("context_receipts", "what went into each context that was served: addresses, sizes, hashes", _receipts),
    Part("jobs", "the work that was done", _jobs),
    Part("retractions", "what was taken out of memory again, and why; its turns have `retracted_at`", _retractions),
]


# --- what stands for internal numbers ---


class Numbers:
    """Rows by their place in a group, counted from 1, for an export has no primary keys."""

    def __init__(self) -> None:
        self._given: dict[int, int] = {}
        self._last: Counter[Any] = Counter()

    def give(self, group: Any, pk: int) -> int:
        """The next number of a group."""
        self._last[group] += 1
        self._given[pk] = self._last[group]
        return self._given[pk]

    def of(self, pk: int | None) -> int | None:
        """The number a row has."""
        return None if pk is None else self._given[pk]


def _with_atom_ids(rows: Rows, user: UserProfile) -> Rows:
    """Puts the public numbers of observations in the place of their primary keys."""
    for batch in batched(rows):
        pks = {pk for row in batch for line in row["lines"] or () for pk in line or ()}
        found = dict(MemoryAtom.objects.filter(user=user, pk__in=pks).values_list("pk", "atom_id"))
        for row in batch:
            yield row | {"lines": row["lines"] and [_known(line, found) for line in row["lines"]]}


def _known(line: list[int] | None, found: dict[int, Any]) -> list[str] | None:
    return None if line is None else [str(found[pk]) for pk in line if pk in found]


def _with_sequences(rows: Rows, user: UserProfile) -> Rows:
    """Puts the sequences of turns in the place of their primary keys; archived ones are left out."""
    for batch in batched(rows):
        pks = {pk for row in batch for pk in row["source_sequences"]}
        found = dict(Message.objects.for_user(user).filter(pk__in=pks).values_list("pk", "sequence"))
        for row in batch:
            yield row | {"source_sequences": [found[pk] for pk in row["source_sequences"] if pk in found]}
