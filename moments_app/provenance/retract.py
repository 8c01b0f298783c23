"""`retract`: withdraw some or all turns of a session, and everything derived from them.

One transaction withdraws all of it, and queues jobs that rebuild withdrawn data from its remaining sources. From then
on, no engine, context or search receives withdrawn data. Nothing is destroyed: withdrawn rows are stored, and `undo`
restores them.

Answers that repeat the turns are retracted with them. Answers in other sessions get separate retractions.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import Max, Model, QuerySet, Sum

from moments_app.models import (
    Cause,
    CorrectedTurn,
    MemoryAtom,
    MemoryStream,
    Moment,
    Release,
    ReleaseSource,
    Retraction,
    StatementChange,
    Summary,
    TurnEmbedding,
)
from moments_app.moments.partition import remove_keys
from moments_app.provenance.dependents import ItemDependents, TurnDependents, dependents_of_turns, lost_notice
from moments_app.provenance.rebuild import (
    MEMORIES,
    MOMENTS,
    calls_for,
    open_rebuilds,
    refresh,
    request_summary,
)
from moments_app.provenance.repeated import RepeatingAnswer, RetractedText, find_repeating_turns
from moments_app.streams.texts import changed_since, undo_since
from moments_app.streams.timeline import recompute_timelines, refresh_derived, reopen
from sessions_app.database.sql import lock_rows
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.refusals import Refusal

ARCHIVED = "It is archived. Restore the session first."
MAX_TURNS = 10_000  # maximum turns in a list of sequence numbers; a whole session may have more


class CannotRetract(Refusal):
    """The turns or items can't be retracted. The message says why."""

    code = "cannot_retract"


class TurnsAreArchived(CannotRetract):
    """Some of the turns are archived. Restore the session before you retract the turns or undo their retraction."""


def sequences_of(text: str) -> list[int]:
    """Return the sequence numbers in a text such as `3,4,7-9`.

    Raises:
        CannotRetract: the text is invalid or contains too many turns.
    """
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not re.fullmatch(r"[0-9]{1,18}(-[0-9]{1,18})?", part):
            raise CannotRetract("Enter turn numbers, such as 3,4,7-9.")
        first, _, last = part.partition("-")
        sequences = range(int(first), int(last or first) + 1)
        if not sequences or len(found) + len(sequences) > MAX_TURNS:
            raise CannotRetract(f"Enter from 1 to {MAX_TURNS} turns, with the smaller number of each range first.")
        found.update(sequences)
    return sorted(found)


@dataclass(frozen=True)
class Preview:
    """The effects that a retraction of turns or items would have.

    Args:
        withdrawn: number of rows that would be withdrawn, by kind. Each row counts once.
        engine_calls: estimated number of calls to rebuild withdrawn data from its remaining sources.
        answers: answers that repeat the turns or items. Those without a `problem` would also be retracted.
        dependents: the dependent rows of each session and of the items.
        items: number of directly written items that would be retracted.
        lost: a sentence about withdrawn rows that can't be rebuilt; blank if there are none.
    """

    turns: int
    withdrawn: dict[str, int]
    engine_calls: int
    answers: list[RepeatingAnswer]
    dependents: Sequence[ItemDependents]
    items: int = 0
    lost: str = ""

    @property
    def of_turns(self) -> list[TurnDependents]:
        """The dependent rows of turns, for each session."""
        return [part for part in self.dependents if isinstance(part, TurnDependents)]

    @property
    def moment_keys(self) -> list[str]:
        return [moment.key for part in self.of_turns for moment in part.moments]


def preview(session: Session, sequences: Sequence[int] | None, *, leave: Collection[str] = ()) -> Preview:
    """Return what `retract` would do with these arguments, without changing anything. Raises the same errors."""
    answers = _answers(session, sequences)
    others = sequences_by_session(answers, leave)
    own = _dependents(session, _including(sequences, others.pop(session, [])))
    answering = dependents_of_answers(others)
    parts = [own, *answering]
    in_part = answering if sequences is None else parts  # a whole session isn't rebuilt
    return Preview(
        turns=sum(part.turns.count() for part in parts),
        withdrawn=counts_of(parts),
        engine_calls=consolidations(parts) + calls_of(in_part),
        answers=answers,
        dependents=parts,
        lost=lost_notice(in_part),
    )


@transaction.atomic
def retract(
    session: Session,
    sequences: Sequence[int] | None,
    *,
    reason: str,
    requested_by: str,
    leave: Collection[str] = (),
) -> Retraction:
    """Withdraw turns, answers that repeat them and everything derived from them. Queue the jobs that rebuild the rest.

    Args:
        sequences: sequence numbers of the turns; None: all turns of the session.
        requested_by: `key:…`, `operator:…` or `command`.
        leave: addresses of repeating answers that are not retracted.

    Raises:
        CannotRetract: the turns don't exist, are already retracted, or were archived.
    """
    answers = lock_answers(sequences_by_session(_answers(session, sequences), leave), session)
    lock_person(session.user_id)
    lock_streams(*(each.atoms.all() for each in (session, *answers)))
    own = answers.pop(session, [])
    retraction = _retract(session, _including(sequences, own), reason=reason, requested_by=requested_by)
    retract_answers(retraction, answers)
    return retraction


def retract_answers(retraction: Retraction, answers: dict[Session, list[int]]) -> None:
    """Retract answers in other sessions. The caller has locked their sessions and streams."""
    for session, sequences in answers.items():
        _retract(session, sequences, reason=retraction.reason, requested_by=retraction.actor)


def _retract(session: Session, sequences: Sequence[int] | None, *, reason: str, requested_by: str) -> Retraction:
    session = lock_session(session.pk)
    found = _dependents(session, sequences)
    retraction = Retraction.objects.create(
        user=session.user,
        session=session,
        sequences=None if sequences is None else sorted(set(sequences)),
        reason=reason,
        requested_by=requested_by,
        result={"turns": found.turns.count(), "withdrawn": counts_of([found])},
        waiting=open_rebuilds(session),
    )
    turn_ids = list(found.turns.values_list("pk", flat=True))
    user = session.user_id
    Message.objects.filter(user_id=user, pk__in=turn_ids).update(retracted_at=retraction.created_at)
    TurnEmbedding.objects.filter(user_id=user, source_id__in=turn_ids).delete()
    _withdraw(retraction, found)
    if found.moments and sequences is not None:
        first = min(moment.first_sequence for moment in found.moments)
        found.session.last_moment_message_idx = first - 1 if first else None
    recount(found.session)
    _queue_rebuilds(retraction, found, is_whole=sequences is None)
    log_event("memory_retracted", retraction, requested_by)
    return retraction


def lock_answers(answers: dict[Session, list[int]], *sessions: Session) -> dict[Session, list[int]]:
    """Lock the sessions of answers, and other sessions. Return the answers that were not retracted in the meantime."""
    lock_sessions([*sessions, *answers])
    left = {}
    for session, sequences in answers.items():
        believed = session.messages.turns().unretracted().filter(user_id=session.user_id, sequence__in=sequences)
        left[session] = sorted(believed.values_list("sequence", flat=True))
    return {session: sequences for session, sequences in left.items() if sequences}


def lock_sessions(sessions: Iterable[Session]) -> None:
    """Lock sessions in the common order, to prevent deadlocks. Call this before you lock the person."""
    lock_rows(Session.objects.filter(pk__in=[session.pk for session in sessions]))


def lock_session(session_id: int) -> Session:
    """Lock and return a session with its person."""
    session = Session.objects.locked().get(pk=session_id)
    session.user = lock_person(session.user_id)
    session.retraction_count += 1  # so that running jobs discard their results
    session.save(update_fields=["retraction_count"])
    return session


def lock_person(user_id: int) -> UserProfile:
    user = UserProfile.objects.locked().get(pk=user_id)
    user.save(update_fields=["updated_at"])  # invalidates cached contexts
    return user


def lock_streams(*items: QuerySet[MemoryAtom]) -> None:
    """Lock the streams whose texts may contain some items, to prevent consolidations in the meantime.

    Call this after locking the person. All streams are locked with one query, to prevent deadlocks between people who
    share a shard. A shard's text contains no candidates, only the items released from them.
    """
    telling: set[int] = set()
    for atoms in items:
        released = Release.objects.in_effect().filter(sources__atom__in=atoms)
        # Use two queries. For one query with conditions on two tables, PostgreSQL would read all streams.
        telling.update(atoms.filter(is_candidate=False).values_list("stream_id", flat=True))
        telling.update(released.values_list("stream_id", flat=True))
    lock_rows(MemoryStream.objects.filter(pk__in=telling))


# --- repeating answers ---


def _answers(session: Session, sequences: Sequence[int] | None) -> list[RepeatingAnswer]:
    found = _dependents(session, sequences)
    turns = list(found.turns.order_by("sequence"))
    retracted = RetractedText(
        user=session.user,
        texts=[turn.content for turn in turns],
        turns=_pks(turns),
        since=min(turn.arrived_at for turn in turns),
        served=found.addresses(),
        shown={session.pk: turns[0].sequence},
    )
    return repeating_answers(retracted)


def repeating_answers(retracted: RetractedText) -> list[RepeatingAnswer]:
    """Return the answers that repeat retracted text, with the reasons why some of them can't be retracted."""
    found = [
        RepeatingAnswer(turn, ARCHIVED if turn.kind == Message.Kind.ARCHIVED else "")
        for turn in find_repeating_turns(retracted, _served_of)
    ]
    problems = {}
    for session, sequences in sequences_by_session(found).items():
        try:
            _dependents(session, sequences)
        except CannotRetract as error:
            problems[session] = str(error)
    return [replace(answer, problem=answer.problem or problems.get(answer.turn.session, "")) for answer in found]


def _served_of(turns: Sequence[Message]) -> Iterator[str]:
    """Yield the addresses of the turns and of the rows derived from them."""
    for session, sequences in sequences_by_session([RepeatingAnswer(turn) for turn in turns]).items():
        turns_of_it = Message.objects.all_turns_of(session, sequence__in=sequences)
        yield from dependents_of_turns(session, turns_of_it, is_whole=False).addresses()


def sequences_by_session(answers: Iterable[RepeatingAnswer], leave: Collection[str] = ()) -> dict[Session, list[int]]:
    """Return the sequence numbers of the answers to retract, keyed by session."""
    found: dict[Session, list[int]] = {}
    for answer in answers:
        if not answer.problem and answer.ref not in leave:
            found.setdefault(answer.turn.session, []).append(answer.turn.sequence)
    return found


def dependents_of_answers(answers: dict[Session, list[int]]) -> list[TurnDependents]:
    return [_dependents(session, sequences) for session, sequences in answers.items()]


def _including(sequences: Sequence[int] | None, answers: Iterable[int]) -> list[int] | None:
    return None if sequences is None else sorted({*sequences, *answers})


# --- the turns to retract ---


def _dependents(session: Session, sequences: Sequence[int] | None) -> TurnDependents:
    turns = _turns(session, sequences)
    found = dependents_of_turns(session, turns, is_whole=sequences is None)
    first = min((moment.first_sequence for moment in found.moments), default=session.last_sequence + 1)
    first = 0 if sequences is None else first
    if session.archives.filter(last_sequence__gte=first).exists():
        raise TurnsAreArchived(f"sequences: turns from {first} on are archived. Restore the session first.")
    return found


def _turns(session: Session, sequences: Sequence[int] | None) -> QuerySet[Message]:
    turns = session.messages.turns().filter(user_id=session.user_id)
    if sequences is None:
        if not turns.unretracted().exists():
            if session.archives.exists():
                raise TurnsAreArchived("The turns of the session are archived. Restore the session first.")
            raise CannotRetract("The session has no turns that can be retracted.")
        return turns.unretracted()
    if not sequences:
        raise CannotRetract("sequences: name at least one turn, or omit the field to retract the whole session.")
    turns = turns.filter(sequence__in=sequences)
    if missing := sorted(set(sequences) - set(turns.values_list("sequence", flat=True))):
        if session.messages.archived().filter(user_id=session.user_id, sequence=missing[0]).exists():
            raise TurnsAreArchived(f"sequences: turn {missing[0]} is archived. Restore the session first.")
        raise CannotRetract(f"sequences: the session has no turn {missing[0]} in its transcript.")
    if retracted := turns.exclude(retracted_at=None).order_by("sequence").first():
        raise CannotRetract(f"sequences: turn {retracted.sequence} is already retracted.")
    return turns


def counts_of(parts: Iterable[ItemDependents]) -> dict[str, int]:
    """Return the number of rows that would be withdrawn with turns or items, keyed by kind. Each row counts once."""
    kinds: dict[str, set[tuple[type[Model], int]]] = {}
    for found in parts:
        for kind, rows in found.by_kind().items():
            kinds.setdefault(kind, set()).update((type(row), row.pk) for row in rows)
    return {kind: len(rows) for kind, rows in kinds.items()}


def consolidations(parts: Iterable[ItemDependents]) -> int:
    """Return the number of streams that the retraction consolidates again."""
    return len({stream for found in parts for stream in found.since})


def calls_of(parts: Iterable[TurnDependents]) -> int:
    """Estimate the engine calls to rebuild withdrawn data from its remaining sources, except consolidations."""
    return sum(map(_engine_calls, parts))


def _engine_calls(found: TurnDependents) -> int:
    calls = 0
    if found.moments:
        ours = (min(m.first_sequence for m in found.moments), found.session.built_to)
        turns = found.session.messages.turns().filter(user_id=found.session.user_id, sequence__range=ours)
        calls = calls_for(turns.exclude(pk__in=found.turns))
    return calls + len(found.ranges) + bool(found.summaries)


# --- withdrawal ---


def _withdraw(retraction: Retraction, found: TurnDependents) -> None:
    withdraw_in_streams(retraction, found)
    _store_former_values(retraction, [found.mentions, found.journeys, [found.session]])
    withdraw_rows(retraction, [found.moments, found.drafts, found.summaries, found.events])
    Moment.objects.filter(pk__in=_pks(found.journeys)).update(journey="")
    Moment.objects.relink(found.session.user_id, found.moments)
    for row in found.mentions:  # keys of moments contain their names
        remove_keys(row, {moment.key for moment in found.moments}, recent_moments_summary="")
    if any(_payload(event).get("partition_type") == "session_cleared" for event in found.events):
        found.session.status = Session.Status.ACTIVE


def withdraw_in_streams(retraction: Retraction, found: ItemDependents) -> None:
    """Store items and dependent rows. Then remove them from the streams and texts, which the caller has locked."""
    streams = list(found.streams)
    sources = ReleaseSource.objects.filter(release__in=found.releases).order_by("pk")
    marks = CorrectedTurn.objects.filter(correction__in=found.corrections).order_by("pk")
    cause = Cause(retraction.requested_by, retraction.actor)
    StatementChange.objects.record(StatementChange.Action.RETRACTED, cause, [(atom, {}) for atom in found.atoms])
    history = list(StatementChange.objects.filter(statement__in=[*found.atoms, *found.lines]).order_by("pk"))
    withdrawn: list[Sequence[Model]] = [found.corrections, history, found.atoms, found.people]
    rewritten = [streams, _lock_other_atoms(found), found.releases, sources, found.reopened, marks]
    withdraw_rows(retraction, reversed(found.others.values()))
    retraction.items.store(retraction, found.lines)
    _store_former_values(retraction, rewritten)
    withdraw_rows(retraction, withdrawn)
    Release.objects.filter(pk__in=_pks(found.releases)).update(
        revoked_at=retraction.created_at, revoked_by=retraction.actor
    )
    reopen(found.reopened, cause)
    changed = recompute_timelines([*found.atoms, *found.reopened], cause)
    for stream in streams:
        if stream.pk in found.since:
            undo_since(stream, found.since[stream.pk], cause)
    refresh_derived([*found.atoms, *found.reopened, *changed])


def _store_former_values(retraction: Retraction, rewritten: Iterable[Iterable[Model]]) -> None:
    for rows in rewritten:
        retraction.items.store(retraction, rows, is_rewritten=True)


def withdraw_rows(retraction: Retraction, withdrawn: Iterable[Sequence[Model]]) -> None:
    withdrawn = list(withdrawn)
    for rows in withdrawn:  # store all rows before any of them is deleted
        retraction.items.store(retraction, rows)
    for rows in filter(None, withdrawn):
        type(rows[0])._base_manager.filter(pk__in=_pks(rows)).delete()


def _lock_other_atoms(found: ItemDependents) -> Iterator[MemoryAtom]:
    """Lock and yield other atoms that may have changed since a consolidation first received one of the items."""
    for stream, time in sorted(found.since.items()):
        given = changed_since(stream, time).exclude(pk__in=_pks(found.atoms))
        yield from given.select_for_update(no_key=True)


def recount(session: Session) -> None:
    """Recompute the session's counters from its rows."""
    events = Message.objects.boundaries_of(session)
    last = events.aggregate(last=Max("sequence"))["last"]
    session.live_from_sequence = 0 if last is None else last + 1
    turns = session.messages.turns().unretracted().filter(user_id=session.user_id)
    live = turns.filter(sequence__gte=session.live_from_sequence)
    session.live_tokens = live.aggregate(total=Sum("tokens"))["total"] or 0
    summed = Summary.objects.for_session(session).completed().aggregate(last=Max("end_sequence"))["last"]
    digests = events.exclude(payload__partition_type="moment_compression")
    digested = digests.aggregate(last=Max("sequence"))["last"]
    session.summarised_sequence = max((n for n in (summed, digested) if n is not None), default=None)
    session.save(
        update_fields=["last_moment_message_idx", "live_from_sequence", "live_tokens", "summarised_sequence", "status"]
    )


# --- rebuilding the rest ---


def _queue_rebuilds(retraction: Retraction, found: TurnDependents, *, is_whole: bool) -> None:
    session, by = found.session, retraction.actor
    if not is_whole:
        if found.moments:
            MOMENTS.queue(session, max(moment.last_sequence for moment in found.moments), requested_by=by)
        if found.summaries:
            request_summary(session, requested_by=by)
        if found.ranges:
            MEMORIES.queue(session, found.ranges, requested_by=by)
    refresh(retraction, found.streams)


def log_event(event: str, retraction: Retraction, actor: str) -> None:
    Event.objects.create(
        type=event,
        actor=actor,
        user_pk=retraction.user_id,
        session_pk=retraction.session_id,
        application_id=retraction.stream.application_id if retraction.stream else None,
        payload={"retraction_id": str(retraction.retraction_id)} | retraction.result,
    )


def _pks(rows: Sequence[Any]) -> list[int]:
    return [row.pk for row in rows]


def _payload(event: Message) -> dict[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {}
