"""`settle`: quiet sessions of a person are brought up to date in every memory, and cleared.

One job settles its own session and others of the person that are due, as many as share a call; one session is a list
of one. What no write has covered becomes moments and memories, the digest stands for the live turns, and nothing stays
live: the next message starts from the checkpoint. All of it is one transaction. A session with more turns than one call
takes is settled part by part, each by a job that asks for the next.

An engine in this process is asked for one session after the other, each with the moments of those before. A model is
asked for all of them in one call, or for one session where calls are not combined. What one of the other sessions
spoils is left to its own job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Count, F, FloatField, Sum
from django.db.models.functions import Cast, Greatest, Least
from django.db.models.lookups import GreaterThan

from moments_app.engines import Caller, engine_name
from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.interface import Engine, EngineError
from moments_app.engines.shared_call import PURPOSE, Part
from moments_app.jobs.process import ClaimLost, Lane, Moved, Process, Progress, Skipped, Waits
from moments_app.jobs.workload import Workload, settling_combines, tokens_of, turns_that
from moments_app.models import Circuit, Job, MemoryAtom, MemoryStream, Moment, WebhookDelivery
from moments_app.models.embedding import ask_to_embed
from moments_app.moments import division
from moments_app.moments.division import (
    BuildInput,
    Built,
    Division,
    divide,
    request_of,
    store_each,
)
from moments_app.moments.journey import Told
from moments_app.moments.partition import PartitionEvent, leave_each
from moments_app.sessions.checkpoint import Digested, digest, digester, learn
from moments_app.sessions.quiet_sessions import (
    MOST_SESSIONS,
    SESSIONS_OF_A_CALL,
    Quiet,
    SettleInput,
    claim_sessions,
)
from moments_app.streams import formation
from moments_app.streams.add_atoms import add_to_each
from moments_app.streams.formation import FormationInput, Formed, by_model, closed_model, count_from, end_named
from sessions_app.clock import database_now
from sessions_app.copy_rows import update_rows
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.session import UNBUILT

SETTLED = "session_settled"  # in the event log
PROMPT_TOKENS = 1_150  # of a shared call besides the turns: prompts, and what is known
TURN_TOKENS = 10.0  # of each turn in a request besides its text
UNFORMED = F("message_count") - F("formed_message_count")
CLEARED = (
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
class Thought:
    """What engines made of a session.

    Args:
        quiet: the session.
        built: its moments.
        formed: what its streams take in.
        digested: of its live turns.
    """

    quiet: Quiet
    built: Built | None = None
    formed: Formed | None = None
    digested: Digested | None = None


class Settle(Process[SettleInput, Sequence[Thought]]):
    """Brings quiet sessions up to date, and clears them."""

    name = "settle"
    makes = "memory of quiet sessions"
    lane = Lane.BULK

    def caller(self, job: Job) -> Caller:
        return digester()

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Wait while the circuit of a stream's own model is open.

        Raises:
            Waits: it is.
        """
        own = closed_model(job) if settings.MEMORY_FORMATION.enabled else None
        circuit = Circuit.objects.open_of(own) if own else None
        if circuit and not circuit.lets_in(job):
            raise Waits(database_now(), circuit.why, circuit)
        return None

    def claim(self, job: Job) -> SettleInput | Skipped:
        """Read the session and others of its person that are due."""
        of_a_call = SESSIONS_OF_A_CALL if settings.ENGINE.combines_calls else 1
        most = of_a_call if self.caller(job).is_model else MOST_SESSIONS
        return claim_sessions(job, most=most) or Skipped("not quiet")

    def think(self, input: SettleInput, engine: Engine, progress: Progress) -> Sequence[Thought]:
        """Call the engine, in one call if possible. Return the results of the sessions before the first one that fails.

        Raises:
            EngineError: it had no answer for the first of them.
        """
        told, sessions = _asked_at_once(input.sessions, engine)
        thoughts: list[Thought] = []
        so_far = _SoFar(carries=told is engine)
        for number, one in enumerate(sessions):
            progress(number, len(sessions))
            try:
                thoughts.append(so_far.think(one, told))
            except EngineError:
                if not thoughts:
                    raise
                break
        return thoughts

    def commit(self, job: Job, input: SettleInput, answer: Sequence[Thought]) -> None:
        """Write all sessions and complete their jobs. If that fails, do this only for the session of this job.

        Raises:
            ClaimLost: the job was taken over, or the person or the session is gone.
            Moved: the session or an earlier moment has changed since the claim.
        """
        if len(answer) > 1:
            try:
                with transaction.atomic():
                    return _store(job, input, answer)
            except (ClaimLost, Moved, DatabaseError):
                pass
        _store(job, input, answer[:1])

    def workload(self, *, everything: bool) -> Workload | None:
        """Return the workload of combined calls. Processes that make separate calls return their own workload."""
        if not settling_combines():
            return None
        turns = Cast(turns_that(Greatest(UNBUILT, UNFORMED), everything=everything), FloatField())
        calls = Count("id", filter=GreaterThan(turns, 0.0))
        shown = Least(tokens_of(turns), float(settings.MOMENT_BUILDER.max_input_tokens)) + turns * TURN_TOKENS
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(shown), usual_answer=1_500, prompt_tokens=PROMPT_TOKENS, purpose=PURPOSE)


# --- think ---


def _asked_at_once(sessions: Sequence[Quiet], engine: Engine) -> tuple[Engine, Sequence[Quiet]]:
    """Ask the model for all sessions in one call. If that fails, ask it for the first session only.

    Returns:
        The engine that has the answers, and the sessions that it has them for; the engine as it was where each request
        is to be made by itself.
    """
    if not settings.ENGINE.combines_calls:
        return engine, sessions
    for count in dict.fromkeys((len(sessions), 1)):
        parts = [part for number, one in enumerate(sessions[:count], start=1) for part in _parts(one, number)]
        try:
            return (engine.with_answers(parts) if len(parts) > 1 else engine), sessions[:count]
        except EngineError:
            continue
    return engine, sessions[:1]


def _parts(one: Quiet, number: int) -> list[Part]:
    """Return the requests about a session that can share a call."""
    parts = []
    if one.build and len(one.build.chunks) == 1:
        [chunk] = one.build.chunks
        request = request_of(one.build, chunk, one.build.known.journey)
        parts.append(Part(request, chunk.sequences, number))
    if one.formation and (sections := by_model(one.formation).get("")):
        memories = replace(one.formation.request, sections=sections)
        parts.append(Part(memories, [turn.index for turn in memories.turns], number))
    if one.digest and one.digest.request.turns:
        parts.append(Part(one.digest.request, [turn.index for turn in one.digest.request.turns], number))
    return parts


class _SoFar:
    """Collects the results of earlier sessions, which later sessions are shown.

    Args:
        carries: whether the engine is shown these results. If not, the answers came in one call.
    """

    def __init__(self, *, carries: bool) -> None:
        self._carries = carries
        self._moments: list[Told] = []

    def think(self, one: Quiet, engine: Engine) -> Thought:
        """Have the engine answer for a session.

        Raises:
            EngineError: it gave no valid answer.
        """
        thought = Thought(one)
        if one.build:
            self._divide(one.build, thought, engine)
        if one.formation:
            thought.formed = formation.form(one.formation, engine, _no_progress)
        if one.digest:
            thought.digested = digest(one.digest, engine)
        return thought

    def _divide(self, shown: BuildInput, thought: Thought, engine: Engine) -> None:
        if self._carries:
            known = thought.quiet.before.with_new(self._moments, thought.quiet.place.until).known
            shown = replace(shown, known=known)
        thought.built = built = divide(shown, engine, _no_progress)
        self._moments += _told(thought.quiet, built)


def _no_progress(_done: int, _total: int) -> None:
    """Ignore the progress within a session. Only finished sessions count."""


def _told(one: Quiet, built: Built) -> list[Told]:
    """Return the moments that a session's turns will be, as the builds after it are shown them."""
    told = []
    for segment in built.segments:
        held = range(segment.first_sequence, segment.last_sequence + 1)
        times = [turn.created_at for turn in one.turns if turn.sequence in held]
        moment = KnownMoment(segment.draft.name.strip(), segment.draft.summary, min(times), max(times))
        told.append(Told(None, moment, segment.first_sequence, ""))
    latest = max(told, key=lambda moment: moment.order)
    return [replace(moment, journey=built.journey) if moment is latest else moment for moment in told]


# --- commit ---

Results = dict[Job, dict[str, Any]]


def _store(job: Job, input: SettleInput, thoughts: Sequence[Thought]) -> None:
    sessions = _locked(job, input.user.pk, [thought.quiet for thought in thoughts])
    user = UserProfile.objects.locked().get(pk=input.user.pk)
    _refuse_what_moved(input)
    made = {division.BUILT: _store_moments(user, thoughts), formation.FORMED: _store_atoms(job, thoughts)}
    results = _leave_digests(thoughts)
    for by, result in results.items():
        result |= {name: of_jobs[by] for name, of_jobs in made.items() if by in of_jobs}
    _update_sessions(sessions, thoughts)
    Job.objects.complete_each(results)
    _tell(thoughts, results)
    for one in (thought.quiet for thought in thoughts if not thought.quiet.is_whole):
        Job.objects.request(Settle.name, one.session, requested_by=job.requested_by, force=job.force)
    ask_to_embed(f"job:{job.job_id}", user_id=user.pk)


def _locked(job: Job, user: int, sessions: Sequence[Quiet]) -> Mapping[int, Session]:
    """Lock the sessions and claim the jobs, in the order in which others do.

    Raises:
        ClaimLost: the session is gone, or a job is taken, cancelled or gone.
        Moved: a session has changed.
    """
    claimed = {one.session.pk: one.session for one in sessions}
    locked = {session.pk: session for session in Session.objects.locked().filter(pk__in=claimed).order_by("pk")}
    others = [one.job for one in sessions if one.job.pk != job.pk]
    if locked.keys() != claimed.keys() or not job.is_claimed() or (others and not Job.objects.take_each(others)):
        raise ClaimLost
    if any(_state(locked[pk]) != _state(session) for pk, session in claimed.items()):
        raise Moved("A session changed while the engine was thinking.")
    for session in locked.values():
        session.user = claimed[session.pk].user
    return locked


def _state(session: Session) -> tuple[Any, ...]:
    """Return the fields of a session that must not change between claim and commit."""
    done = session.built_to, session.formed_to, session.live_from_sequence
    return session.status, session.last_sequence, session.retraction_count, *done


def _refuse_what_moved(input: SettleInput) -> None:
    told = {one.pk: one.journey for each in input.sessions for one in each.before.latest if one.pk}
    if dict(Moment.objects.filter(pk__in=told).values_list("pk", "journey")) != told:
        raise Moved("Moments that the engine received were deleted.")


def _store_moments(user: UserProfile, thoughts: Sequence[Thought]) -> Results:
    """Write moments."""
    builds = [(one, one.quiet.build, one.built) for one in thoughts if one.quiet.build and one.built]
    if not builds:
        return {}
    stored = store_each([Division(one.quiet.job, input, built) for one, input, built in builds])
    Moment.objects.relink(user.pk, list(chain.from_iterable(stored)))
    user.save(update_fields=["updated_at"])  # contexts that were kept are built again
    each = zip(builds, stored, strict=True)
    return {one.quiet.job: division.result_of(input, built, moments) for (one, input, built), moments in each}


def _store_atoms(job: Job, thoughts: Sequence[Thought]) -> Results:
    """Add what was formed, and end what it ends."""
    results: Results = {}
    formed = [
        (one.quiet.job, one.quiet.formation, one.formed) for one in thoughts if one.quiet.formation and one.formed
    ]
    for group in _groups([(by, input, made, formation.atoms_of(by, input, made)) for by, input, made in formed]):
        streams: dict[int, tuple[MemoryStream, list[MemoryAtom]]] = {}
        for _, input, made, atoms in group:
            for stream, items in formation.by_stream(input, made, atoms):
                streams.setdefault(stream.pk, (stream, []))[1].extend(items)
        add_to_each(list(streams.values()), requested_by=f"job:{job.job_id}")
        for by, input, made, atoms in group:
            ended = sum(end_named(atom, item, input) for atom, item in zip(atoms, made.candidates, strict=True))
            results[by] = formation.result_of(input, made, atoms, ended=ended)
    return results


FormedBy = tuple[Job, FormationInput, Formed, list[MemoryAtom]]


def _groups(formed: Sequence[FormedBy]) -> Iterator[list[FormedBy]]:
    """Yield groups of sessions to add in one statement. Sessions with the same attribute are in different groups."""
    group: list[FormedBy] = []
    told: set[str] = set()
    for each in formed:
        attributes = {attribute for atom in each[-1] if (attribute := atom.describe().attribute)}
        if attributes & told:
            yield group
            group, told = [], set()
        group.append(each)
        told |= attributes
    if group:
        yield group


def _leave_digests(thoughts: Sequence[Thought]) -> Results:
    """Leave the checkpoints, and the lessons."""
    digests = [(one.quiet, one.quiet.digest, one.digested) for one in thoughts if one.quiet.digest and one.digested]
    events = [
        (PartitionEvent.of_digest(made.context, made.lessons, input.turns, session=one.session, cleared=True), input)
        for one, input, made in digests
    ]
    if events:
        leave_each([(event, input.turns.stop - 1) for event, input in events])
    learned = {one.job: learn(one.job, input, made) for one, input, made in digests}
    return {one.quiet.job: learned.get(one.quiet.job, {}) for one in thoughts}


def _update_sessions(sessions: Mapping[int, Session], thoughts: Sequence[Thought]) -> None:
    """Move the counters of sessions; those of which all turns were taken are cleared."""
    whole = [sessions[one.quiet.session.pk] for one in thoughts if one.quiet.is_whole]
    for session in whole:
        _clear(session)
    if whole:
        update_rows(whole, CLEARED)
    for one in (thought.quiet for thought in thoughts if not thought.quiet.is_whole):
        session = sessions[one.session.pk]
        session.built_to = max(session.built_to, one.last_sequence)
        session.save(update_fields=["last_moment_message_idx"])
        if settings.MEMORY_FORMATION.enabled and session.formed_to < one.last_sequence:
            count_from(session, one.last_sequence)


def _clear(session: Session) -> None:
    """Note that everything of a session is remembered, and that nothing is live."""
    session.built_to = session.last_sequence
    session.built_message_count, session.built_total_tokens = session.message_count, session.total_tokens
    if settings.MEMORY_FORMATION.enabled:
        session.formed_to, session.formed_message_count = session.last_sequence, session.message_count
        session.formed_weighted_tokens = session.weighted_tokens
    session.live_from_sequence, session.live_tokens = session.last_sequence + 1, 0
    session.summarised_to = max(session.summarised_to, session.last_sequence)
    session.status = Session.Status.CLEARED


def _tell(thoughts: Sequence[Thought], results: Results) -> None:
    """Say in the event log what was done."""
    events = []
    for one in (thought.quiet for thought in thoughts):
        result = results[one.job]
        told = {name: result[name] for name in (division.BUILT, formation.FORMED) if name in result}
        told |= {SETTLED: result} if one.is_whole else {}
        whose = {"actor": f"job:{one.job.job_id}", "user_pk": one.session.user_id, "session_pk": one.session.pk}
        events += [Event(type=name, payload=payload, **whose) for name, payload in told.items()]
    WebhookDelivery.objects.queue_each(Event.objects.bulk_create(events))
