"""`settle`: write the remaining turns of a person's quiet sessions into memory, and clear the live windows.

One job settles its own session and other due sessions of the person, as many as fit into one call. Turns that are not
in memory yet become moments and memories. A checkpoint derived from them replaces the live turns. One transaction
writes all of this. A session with more turns than one call accepts is settled in parts; the job of one part queues the
job of the next.

An engine within this process receives the sessions one at a time, each with the moments of earlier sessions. A model
receives all sessions in one call. If calls are not combined, a job settles only its own session. If the engine fails
for another session, that session's own job settles it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Count, FloatField, Sum
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Least
from django.db.models.lookups import GreaterThan
from django.dispatch import receiver

from moments_app.engines import EngineFactory, engine_name, language_model
from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.interface import Engine, EngineError
from moments_app.engines.shared_call import PURPOSE
from moments_app.jobs.process import (
    ClaimLost,
    InputChanged,
    Lane,
    PostponeJob,
    Process,
    Progress,
    Skipped,
    Workload,
    no_progress,
    queue_embedding,
    settling_is_one_call,
    tokens_of,
    turns_to_estimate,
)
from moments_app.models import Circuit, EpisodeDraft, Job, Moment, WebhookDelivery
from moments_app.moments.division import BUILT, BuildResult, FinishedBuild, divide, lock_if_unchanged, store_builds
from moments_app.moments.division import result_of as built_result
from moments_app.moments.journey import PriorMoment, extended, journey_text
from moments_app.moments.partition import PartitionEvent, store_events
from moments_app.sessions.checkpoint import OPEN, DigestResult, Episode, derive_digest
from moments_app.sessions.checkpoint import result_of as digest_result
from moments_app.sessions.quiet_sessions import (
    MAX_SESSIONS,
    MAX_SESSIONS_PER_CALL,
    QuietSession,
    SettleInput,
    claim_sessions,
)
from moments_app.streams import formation
from moments_app.streams.formation import (
    FORMED,
    UNFORMED,
    Candidate,
    FormationResult,
    calls_before_settling,
    model_with_open_circuit,
    set_formed_to,
)
from moments_app.streams.timeline import MIN_CONFIDENCE
from sessions_app.clock import database_now
from sessions_app.database.sql import update_rows
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.session import UNBUILT
from sessions_app.signals import turns_overdue

SETTLED = "session_settled"  # type of the logged event
PROMPT_TOKENS = 1_050  # estimated tokens of prompts and known items in a shared call
TURN_TOKENS = 10.0  # estimated tokens per turn in addition to the text
CLEARED_FIELDS = (
    "last_moment_message_idx",
    "built_message_count",
    "built_total_tokens",
    "last_formation_sequence",
    "formed_message_count",
    "formed_weighted_tokens",
    "live_from_sequence",
    "live_tokens",
    "summarised_sequence",
    "status",
)


@dataclass
class SessionResult:
    quiet: QuietSession
    built: BuildResult | None = None
    moments: Sequence[PriorMoment] = ()  # unsaved moments, in the form that later builds receive
    formed: FormationResult | None = None
    digested: DigestResult | None = None
    result: dict[str, Any] = field(default_factory=dict)  # result of the session's job, filled by the commit


class Settle(Process[SettleInput, Sequence[SessionResult]]):
    name = "settle"
    title = "Bring an idle session up to date"
    output = "memory of idle sessions"
    lane = Lane.BULK

    def engine_factory(self, job: Job) -> EngineFactory:
        return language_model(settings.ENGINE.model)

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Raise `PostponeJob` while the circuit of a stream's own model is open."""
        own = model_with_open_circuit(job) if settings.MEMORY_FORMATION.enabled else None
        circuit = Circuit.objects.open_for(own) if own else None
        if circuit and not circuit.allows(job):
            raise PostponeJob(database_now(), circuit.why, circuit)
        return None

    def claim(self, job: Job) -> SettleInput | Skipped:
        of_a_call = MAX_SESSIONS_PER_CALL if settings.ENGINE.combines_calls else 1
        limit = of_a_call if self.engine_factory(job).is_model else MAX_SESSIONS
        return claim_sessions(job, limit=limit) or Skipped("the session is not idle, or is already up to date")

    def think(self, input: SettleInput, engine: Engine, progress: Progress) -> Sequence[SessionResult]:
        """Call the engine, in one call if possible. Return the results of the sessions before the first failure.

        Raises:
            EngineError: the first session failed.
        """
        engine_of_all, sessions = _call_for_all(input.sessions, engine)
        results: list[SessionResult] = []
        for number, one in enumerate(sessions):
            progress(number, len(sessions))
            try:
                results.append(_process_session(one, engine_of_all, results, is_chained=engine_of_all is engine))
            except EngineError:
                if not results:
                    raise
                break
        return results

    def commit(self, job: Job, input: SettleInput, answer: Sequence[SessionResult]) -> None:
        """Write all sessions and complete their jobs. If that fails, do this only for the session of this job.

        Raises:
            ClaimLost: the job was taken over, or the person or the session was deleted.
            InputChanged: the session or an earlier moment has changed since the claim.
        """
        if len(answer) > 1:
            try:
                with transaction.atomic():
                    return _store(job, input, answer)
            except (ClaimLost, InputChanged, DatabaseError):
                pass
        _store(job, input, answer[:1])

    def workload(self, *, everything: bool) -> Workload | None:
        """Return the workload of combined calls. Processes that make separate calls return their own workload."""
        if not settling_is_one_call():
            return None
        is_formed = settings.MEMORY_FORMATION.enabled
        turns = Cast(turns_to_estimate(UNFORMED if is_formed else UNBUILT, everything=everything), FloatField())
        calls: Combinable = Count("id", filter=GreaterThan(turns, 0.0))
        if is_formed and everything:
            calls += Sum(calls_before_settling())
        shown = tokens_of(turns)
        if not is_formed:  # builds call the engine for longer sessions
            shown = Least(shown, float(settings.MOMENT_BUILDER.max_input_tokens))
        shown += turns * TURN_TOKENS
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(shown), usual_answer=1_900, prompt_tokens=PROMPT_TOKENS, purpose=PURPOSE)


# --- think ---


def _call_for_all(sessions: Sequence[QuietSession], engine: Engine) -> tuple[Engine, Sequence[QuietSession]]:
    """Call the model for all sessions in one call. If that fails, call it for the first session only.

    Returns:
        An engine that serves the answers of the call, and the sessions that the call was for. If calls aren't combined,
        the unchanged engine and all sessions.
    """
    if not settings.ENGINE.combines_calls:
        return engine, sessions
    for count in dict.fromkeys((len(sessions), 1)):
        parts = [
            part
            for number, one in enumerate(sessions[:count], start=1)
            for part in formation.parts_of(one.formation, one.build, number)
        ]
        try:
            return (engine.with_answers(parts) if len(parts) > 1 else engine), sessions[:count]
        except EngineError:
            continue
    return engine, sessions[:1]


def _process_session(
    quiet: QuietSession, engine: Engine, earlier: Sequence[SessionResult], *, is_chained: bool
) -> SessionResult:
    """Call the engine for a session.

    Args:
        earlier: the results of the earlier sessions of this run.
        is_chained: whether the engine receives the moments of the earlier sessions. If False, one call has already
            returned the answers for all sessions.
    """
    result = SessionResult(quiet)
    if quiet.build:
        moments = [moment for each in earlier for moment in each.moments]
        known = quiet.before.with_new(moments, quiet.position.until).known
        built = divide(replace(quiet.build, known=known) if is_chained else quiet.build, engine, no_progress)
        result.moments = _unsaved_moments(quiet, built)
        journey = extended(known.journey, [new.moment for new in result.moments])
        result.built = replace(built, journey=journey_text(journey))
    if quiet.formation:
        items = [] if is_chained else _earlier_items(quiet, earlier)
        result.formed = formation.form(quiet.formation, engine, no_progress, items)
    if quiet.digest:
        lessons = [item.draft.text for item in result.formed.lessons] if result.formed else []
        result.digested = derive_digest(quiet.digest, _episodes(result), _open_items(result), lessons, engine.name)
    return result


def _earlier_items(quiet: QuietSession, earlier: Sequence[SessionResult]) -> list[Candidate]:
    """Return the items of earlier sessions with the same agent, except items of streams with their own model."""
    return [
        item
        for each in earlier
        if each.formed and each.quiet.formation and each.quiet.session.agent_id == quiet.session.agent_id
        for item in each.formed.candidates
        if not each.quiet.formation.streams[item.label].own_model
    ]


def _unsaved_moments(quiet: QuietSession, built: BuildResult) -> list[PriorMoment]:
    new = []
    for segment in built.segments:
        held = range(segment.first_sequence, segment.last_sequence + 1)
        times = [turn.created_at for turn in quiet.turns if turn.sequence in held]
        moment = KnownMoment(segment.draft.name.strip(), segment.draft.summary, min(times), max(times))
        new.append(PriorMoment(None, moment, segment.first_sequence))
    return new


def _episodes(result: SessionResult) -> list[Episode]:
    """Return the new moments with live turns, as episodes of a checkpoint."""
    live_from = result.quiet.session.live_from_sequence
    segments = result.built.segments if result.built else ()
    return [
        Episode(new.moment.ends_at.date(), one.draft.summary, one.draft.detail)
        for one, new in zip(segments, result.moments, strict=True)
        if one.last_sequence >= live_from
    ]


def _open_items(result: SessionResult) -> list[str]:
    """Return the tasks and problems that are open at the end of the live turns, in order."""
    shown, items = result.quiet.formation, result.formed.candidates if result.formed else []
    ended = {
        (item.label, each) for item in items if item.draft.confidence >= MIN_CONFIDENCE for each in item.draft.ends
    }
    known = {shown.known[each] for _label, each in ended if each in shown.known} if shown else set()
    before = [atom.content for atom in result.quiet.opened if atom.pk not in known]
    new = [item for item in items if item.draft.kind in OPEN and (item.label, item.draft.letter) not in ended]
    return list(dict.fromkeys([*before, *(item.draft.text for item in new)]))


# --- commit ---


def _store(job: Job, input: SettleInput, results: Sequence[SessionResult]) -> None:
    sessions = _locked(job, [result.quiet for result in results])
    builds = [one.build for one in input.sessions if one.build]
    user = lock_if_unchanged(input.user.pk, input.corrections, builds=builds)
    _store_moments(user, results)
    _store_items(job, results)
    _store_digests(results)
    _update_sessions(sessions, results)
    Job.objects.complete_many({one.quiet.job: one.result for one in results})
    _log_events(results)
    for one in (result.quiet for result in results if not result.quiet.is_whole):
        Job.objects.request(Settle.name, one.session, requested_by=job.requested_by, force=job.force)
    queue_embedding(f"job:{job.job_id}", user_id=user.pk)


def _locked(job: Job, sessions: Sequence[QuietSession]) -> Mapping[int, Session]:
    """Lock the sessions and claim the jobs, in the common lock order. Raise the errors of `commit`."""
    claimed = {one.session.pk: one.session for one in sessions}
    locked = {session.pk: session for session in Session.objects.locked().filter(pk__in=claimed).order_by("pk")}
    others = [one.job for one in sessions if one.job.pk != job.pk]
    if locked.keys() != claimed.keys() or not job.is_claimed() or (others and not Job.objects.claim_many(others)):
        raise ClaimLost
    if any(_state(locked[pk]) != _state(session) for pk, session in claimed.items()):
        raise InputChanged("A session changed while the engine was working.")
    for session in locked.values():
        session.user = claimed[session.pk].user
    return locked


def _state(session: Session) -> tuple[Any, ...]:
    """Return what must not change between claim and commit."""
    done = session.built_to, session.formed_to, session.live_from_sequence
    return session.status, session.last_sequence, session.retraction_count, *done


def _store_moments(user: UserProfile, results: Sequence[SessionResult]) -> None:
    built = [
        (result, FinishedBuild(result.quiet.job, result.quiet.build, result.built))
        for result in results
        if result.quiet.build and result.built
    ]
    if not built:
        return
    stored = store_builds([build for _, build in built])
    Moment.objects.relink(user.pk, list(chain.from_iterable(stored)))
    user.save(update_fields=["updated_at"])  # invalidates cached contexts
    for (result, build), moments in zip(built, stored, strict=True):
        result.result[BUILT] = built_result(build.input, build.built, moments)


def _store_items(job: Job, results: Sequence[SessionResult]) -> None:
    formed = [
        (result, (result.quiet.job, result.quiet.formation, result.formed))
        for result in results
        if result.quiet.formation and result.formed
    ]
    stored = formation.store_formations(
        [formation_result for _, formation_result in formed], requested_by=f"job:{job.job_id}"
    )
    for (result, _), payload in zip(formed, stored, strict=True):
        result.result[FORMED] = payload


def _store_digests(results: Sequence[SessionResult]) -> None:
    events = []
    for result in results:
        if (input := result.quiet.digest) and (message := result.digested):
            text = message.context, message.lessons, input.turns
            event = PartitionEvent.of_digest(*text, session=result.quiet.session, cleared=True)
            events.append((event, input.turns.stop - 1))
            result.result |= digest_result(input, message)
    if events:
        store_events(events)


def _update_sessions(sessions: Mapping[int, Session], results: Sequence[SessionResult]) -> None:
    """Update the counters, and clear the sessions whose turns were all processed."""
    for quiet in (result.quiet for result in results):
        session = sessions[quiet.session.pk]
        if quiet.is_whole:
            _clear(session)
            continue
        session.built_to = max(session.built_to, quiet.last_sequence)
        if settings.MEMORY_FORMATION.enabled and session.formed_to < quiet.last_sequence:
            set_formed_to(session, quiet.last_sequence)
    update_rows(list(sessions.values()), CLEARED_FIELDS)
    EpisodeDraft.objects.publish(sessions.values())


def _clear(session: Session) -> None:
    """Record that all turns of a session are in memory and that none is live."""
    session.built_to = session.last_sequence
    session.built_message_count, session.built_total_tokens = session.message_count, session.total_tokens
    if settings.MEMORY_FORMATION.enabled:
        session.formed_to, session.formed_message_count = session.last_sequence, session.message_count
        session.formed_weighted_tokens = session.weighted_tokens
    session.live_from_sequence, session.live_tokens = session.last_sequence + 1, 0
    session.summarized_to = max(session.summarized_to, session.last_sequence)
    session.status = Session.Status.CLEARED


def _log_events(results: Sequence[SessionResult]) -> None:
    events = []
    for result in results:
        payloads = {name: result.result[name] for name in (BUILT, FORMED) if name in result.result}
        payloads |= {SETTLED: result.result} if result.quiet.is_whole else {}
        session = result.quiet.session
        whose = {"actor": f"job:{result.quiet.job.job_id}", "user_pk": session.user_id, "session_pk": session.pk}
        events += [Event(type=name, payload=payload, **whose) for name, payload in payloads.items()]
    WebhookDelivery.objects.queue_many(Event.objects.bulk_create(events))


@receiver(turns_overdue)
def settle_overdue(session: Session, **_: Any) -> None:
    """Queue a settle job for turns past the retention period, so the next run of `retain` can remove them."""
    Job.objects.request(Settle.name, session, requested_by="retain", force=True)
