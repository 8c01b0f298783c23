"""Settling quiet sessions of a person together, where no engine has to be waited for.

What `settle` does for a session by three jobs, each with transactions of its own, is done here for as many as fit by
one claim and one commit, by as many statements as one takes. The rows that are left are the same, jobs and events
included. So is what they say: profile, journey and what streams have go from session to session.

Only plain sessions are taken: those whose steps would each be one run, and of which nothing was retracted or corrected.
A batch ends with a session that may end a fact. The others, and all where anything went wrong or moved meanwhile, are
settled one by one, as if there were nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count
from operator import or_
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.calls.profile import Line, Profile
from moments_app.engines.interface import Engine
from moments_app.jobs.process import ClaimLost, Moved
from moments_app.models import CorrectedTurn, Job, MemoryAtom, MemoryStream, Moment, PromptVersion, WebhookDelivery
from moments_app.models.embedding import ask_to_embed
from moments_app.moments import build
from moments_app.moments.division import (
    BuildInput,
    Built,
    Division,
    builder,
    builder_prompt,
    chunks_read,
    divide,
    line_writer,
    profile_of,
    store_each,
)
from moments_app.moments.journey import Before, Place, Told, before_each
from moments_app.moments.partition import PartitionEvent, known_at, leave_each
from moments_app.moments.profile_lines import known_profile, write_lines
from moments_app.sessions.checkpoint import (
    SHOWN_TURNS,
    Digested,
    DigestInput,
    digest,
    digest_prompt,
    digester,
    input_of,
    learn,
)
from moments_app.streams import form
from moments_app.streams.add_atoms import add_to_each
from moments_app.streams.form import FormationInput, Formed, FormMemories
from moments_app.streams.known_so_far import KnownSoFar
from moments_app.turns.platform_text import blank_platform_text
from sessions_app.copy_rows import update_rows
from sessions_app.models import Event, Message, ProfileVersion, Session, UserProfile
from sessions_app.models.user_profile import LEARNED

# Of one transaction: it takes well under a second, for which an append to one of the sessions would have to wait.
MOST_SESSIONS = 25
MOST_TURNS = 500
SETTLED = "session_settled"  # in the event log
BUILDING, FORMING = build.BuildMoments.name, FormMemories.name
WRITTEN = (
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
class Settling:
    """A session on its way to be settled.

    Args:
        job: of the settling.
        session: as it was at the claim.
        turns: what no step has seen, oldest first.
        read: the same as engines read them, blank where nothing is left.
        known: from before its live turns.
        before: the moments before its unbuilt turns.
        streams: that it feeds.
        build: of its unbuilt turns.
        lines: of the profile after it, as the next session's build gets them.
        formation: of its unformed turns.
        digest: of its live turns.
    """

    job: Job
    session: Session
    turns: Sequence[Message]
    read: Mapping[int, Message]
    known: str = ""
    before: Before = field(default_factory=Before)
    streams: Sequence[MemoryStream] = ()
    build: tuple[BuildInput, Built] | None = None
    lines: Sequence[Line] = ()
    formation: tuple[FormationInput, Formed] | None = None
    digest: tuple[DigestInput, Digested] | None = None

    @property
    def unbuilt(self) -> list[Message]:
        """The turns that no moment holds."""
        return [turn for turn in self.turns if turn.sequence > self.session.built_to]

    @property
    def unformed(self) -> list[Message]:
        """The turns that no formation has seen; blank where memories are not formed."""
        wanted = settings.MEMORY_FORMATION.enabled and self.session.message_count > self.session.formed_message_count
        return [turn for turn in _said(self.turns) if wanted and turn.sequence > self.session.formed_to]

    @property
    def live(self) -> list[Message]:
        """The latest turns of the live window, as far as an engine is shown them."""
        live = [turn for turn in _said(self.turns) if turn.sequence >= self.session.live_from_sequence]
        return live[-SHOWN_TURNS:]

    def shown(self, turns: Iterable[Message]) -> list[Message]:
        """Return turns as engines read them, without those that have nothing else than platform text."""
        return [left for turn in turns if (left := self.read[turn.sequence]) is turn or left.content]

    @property
    def is_plain(self) -> bool:
        """True when each step is one run, and has something to do if there are turns for it."""
        if not self.turns or self.turns[-1].sequence != self.session.last_sequence:
            return False
        unbuilt, unformed = self.unbuilt, self.unformed
        fits = build.fitting(unbuilt) == len(unbuilt) and len(unformed) <= form.MAX_TURNS
        is_formed = self.session.message_count == self.session.formed_message_count
        forms = bool(self.shown(unformed)) or is_formed or not settings.MEMORY_FORMATION.enabled
        return fits and forms and (bool(_said(unbuilt)) or not unbuilt) and bool(self.shown(self.live))

    @property
    def place(self) -> Place:
        """Where its unbuilt turns stand in time."""
        until = max((turn.created_at for turn in _said(self.unbuilt)), default=self.turns[-1].created_at)
        return Place(self.session.pk, self.session.built_to + 1, until)


@dataclass(frozen=True)
class Claimed:
    """What is settled together.

    Args:
        user: whose sessions they are.
        profile: at the claim.
        settlings: in the order in which their jobs were due.
        prompts: of builds, formations and digests.
        streams: what they have.
    """

    user: UserProfile
    profile: Profile
    settlings: Sequence[Settling]
    prompts: Sequence[PromptVersion]
    streams: KnownSoFar


def _said(turns: Iterable[Message]) -> list[Message]:
    return [turn for turn in turns if turn.role != Message.Role.SYSTEM]


def settle_together(job: Job) -> bool:
    """Settle a session, and others of the same person that are due.

    Args:
        job: of the first one, claimed.

    Returns:
        False when nothing was done.

    Raises:
        ClaimLost, Moved: nothing was done, either.
    """
    if builder().is_model or digester().is_model or job.user_id is None:
        return False
    with transaction.atomic():
        claimed = _claim(job)
    if claimed is None:
        return False
    thought = replace(claimed, settlings=_think(claimed))
    with transaction.atomic():
        _commit(job, thought)
    return True


# --- claim ---


def _claim(job: Job) -> Claimed | None:
    """Return what is settled; None where the first session is none that can be settled so."""
    assert job.user_id is not None
    if not UserProfile.objects.hold([job.user_id]):
        raise ClaimLost
    user = UserProfile.objects.get(pk=job.user_id)
    settlings = _read(user, _fitting(user, _jobs(job)))
    if not settlings or settlings[0].job.pk != job.pk:
        return None
    first = settlings[0].session
    _prepare(user, settlings)
    prompts = builder_prompt(first), form.formation_prompt(first), digest_prompt(first)
    streams = KnownSoFar(user, {stream.pk: stream for one in settlings for stream in one.streams}.values())
    return Claimed(user, known_profile(user), settlings, prompts, streams)


def _jobs(job: Job) -> dict[int, Job]:
    """Return the jobs that are due for the same person, the given one first, by their sessions."""
    due = Job.objects.due().filter(process=job.process, user=job.user_id, session__isnull=False)
    others = due.exclude(pk=job.pk).order_by("run_after", "id")[: MOST_SESSIONS - 1]
    return {one.session_id: one for one in [job, *others] if one.session_id is not None}


def _fitting(user: UserProfile, jobs: Mapping[int, Job]) -> list[tuple[Job, Session]]:
    """Return the sessions that are quiet and whose steps nobody else works on, as many as fit."""
    steps = Job.objects.filter(process__in=[BUILDING, FORMING], session__in=jobs)
    busy = set(steps.filter(status__in=[*Job.OPEN, Job.Status.FAILED]).values_list("session_id", flat=True))
    corrected = CorrectedTurn.objects.filter(session__in=jobs).values("session")
    idle = Session.objects.for_user(user).idle().filter(pk__in=jobs, retraction_count=0)
    quiet = idle.exclude(pk__in=busy).exclude(pk__in=corrected)
    sessions = quiet.in_bulk()
    found: list[tuple[Job, Session]] = []
    left = MOST_TURNS
    for pk, job in jobs.items():
        session = sessions.get(pk)
        if session is None or not _is_wanted(job, session):
            continue
        left -= session.last_sequence - _first_unseen(session) + 1
        if left < 0 and found:
            break
        session.user = user
        found.append((job, session))
    return found


def _is_wanted(job: Job, session: Session) -> bool:
    least = settings.SESSION_COMPACTION.min_messages
    return job.force or session.live_count >= least or session.unbuilt_count >= least


def _first_unseen(session: Session) -> int:
    """Return the sequence of the first turn that a step has not seen."""
    return min(session.built_to + 1, session.formed_to + 1, session.live_from_sequence)


def _read(user: UserProfile, quiet: Sequence[tuple[Job, Session]]) -> list[Settling]:
    """Return the plain ones of these sessions, with their turns."""
    if not quiet:
        return []
    unseen = reduce(or_, [Q(session=session, sequence__gte=_first_unseen(session)) for _, session in quiet])
    turns = list(Message.objects.for_user(user).turns().believed().filter(unseen).order_by("session_id", "sequence"))
    of_session: dict[int, list[Message]] = defaultdict(list)
    read: dict[int, dict[int, Message]] = defaultdict(dict)
    for turn, left in zip(turns, blank_platform_text(turns), strict=True):
        of_session[turn.session_id].append(turn)
        read[turn.session_id][turn.sequence] = left
    settlings = [Settling(job, session, of_session[session.pk], read[session.pk]) for job, session in quiet]
    return [one for one in settlings if one.is_plain]


def _prepare(user: UserProfile, settlings: Sequence[Settling]) -> None:
    """Read what is known from before, and make the streams that sessions feed where they aren't there."""
    sessions = [one.session for one in settlings]
    boundaries = Message.objects.for_user(user).partitions().filter(session__in=sessions)
    latest = {
        event.session_id: event
        for event in boundaries.order_by("session_id", "-sequence", "-id").distinct("session_id")
    }
    before = before_each(user.pk, [one.place for one in settlings])
    streams: Mapping[int, Sequence[MemoryStream]] = {}
    if forming := [one.session for one in settlings if one.unformed]:
        MemoryStream.objects.ensure_for_each(forming)
        streams = MemoryStream.objects.seen_by_each(forming)
    for one, then in zip(settlings, before, strict=True):
        one.known, one.before = known_at(latest.get(one.session.pk)), then
        one.streams = streams.get(one.session.pk, ())


# --- think ---


def _think(claimed: Claimed) -> Sequence[Settling]:
    """Have the engines do all steps, as if sessions were settled in turn; return those that can be stored together."""
    building, forming, digesting = claimed.prompts
    profile, new, places = claimed.profile, list[Told](), count(-1, -1)
    engine = builder().open(_unrecorded)
    for number, one in enumerate(claimed.settlings, start=1):
        if one.unbuilt:
            input, built = _built(one, profile, new, building, engine)
            one.build, one.lines = (input, built), [_carried(line, places) for line in built.profile.lines]
            profile = replace(built.profile, kept=one.lines)
            new += _told(one, built)
        end = one.session.last_sequence + 1
        what = input_of(one.session, one.shown(one.live), end, one.known, digesting)
        one.digest = what, digest(what, digester().open(_unrecorded))
        if shown := one.shown(one.unformed):
            one.formation = _formed(one, shown, forming, claimed.streams, engine)
        if one.formation and not claimed.streams.add(form.atoms_of(one.job, *one.formation)):
            return claimed.settlings[:number]
    return claimed.settlings


def _unrecorded(_call: object) -> None:
    """Leave a call unrecorded: an engine in this process makes none."""


def _built(
    one: Settling, profile: Profile, new: Sequence[Told], prompt: PromptVersion, engine: Engine
) -> tuple[BuildInput, Built]:
    shown = _said(one.unbuilt)
    input = BuildInput(
        prompt_version=prompt,
        session=one.session,
        profile=profile,
        known=one.before.with_new(new, one.place.until).known,
        first_sequence=one.session.built_to + 1,
        last_sequence=one.unbuilt[-1].sequence,
        chunks=chunks_read(shown, [one.read[turn.sequence] for turn in shown]),
    )
    return input, divide(input, engine, _no_progress)


def _no_progress(_done: int, _total: int) -> None:
    """Tell nobody how far it is: it is done at once."""


def _carried(line: Line, places: "count[int]") -> Line:
    """Return a line as the next build gets it; a new one has a number in place of its key until it is kept."""
    return replace(line, key=line.key or next(places), sources=(), before=None)


def _told(one: Settling, built: Built) -> list[Told]:
    """Return the moments that a session's turns will be, as the builds after it get them."""
    told = []
    for segment in built.segments:
        held = [
            turn.created_at for turn in one.turns if segment.first_sequence <= turn.sequence <= segment.last_sequence
        ]
        moment = KnownMoment(segment.draft.name.strip(), segment.draft.summary, min(held), max(held))
        told.append(Told(None, moment, segment.first_sequence, ""))
    latest = max(told, key=lambda moment: moment.order)
    return [replace(moment, journey=built.journey) if moment is latest else moment for moment in told]


def _formed(
    one: Settling, shown: Sequence[Message], prompt: PromptVersion, so_far: KnownSoFar, engine: Engine
) -> tuple[FormationInput, Formed] | None:
    streams = form.labelled(one.streams)
    if not streams:
        return None
    input = form.formation_input(one.session, one.unformed, shown, streams, prompt, so_far.known(streams))
    return input, FormMemories().think(input, engine, _no_progress)


# --- commit ---


def _commit(job: Job, claimed: Claimed) -> None:
    settlings = claimed.settlings
    _lock(job, claimed)
    user = UserProfile.objects.locked().get(pk=claimed.user.pk)
    _refuse_what_moved(user, claimed)
    steps = _step_jobs(settlings)
    results = _store_moments(user, settlings, steps) | _form(job, settlings, steps)
    results |= _leave_digests(settlings)
    _update_sessions(settlings)
    Job.objects.complete_each(results)
    _tell(results)
    ask_to_embed(f"job:{job.job_id}", user_id=user.pk)


def _lock(job: Job, claimed: Claimed) -> None:
    """Lock the sessions and claim the jobs, in the order in which others do.

    Raises:
        ClaimLost: the person is gone, or a job is not to be had any more.
        Moved: a session has changed.
    """
    if not UserProfile.objects.hold([claimed.user.pk]):
        raise ClaimLost
    sessions = {one.session.pk: one.session for one in claimed.settlings}
    locked = Session.objects.locked().filter(pk__in=sessions).order_by("pk")
    if {_state(session) for session in locked} != {_state(session) for session in sessions.values()}:
        raise Moved("A session has changed meanwhile.")
    others = [one.job for one in claimed.settlings if one.job.pk != job.pk]
    if not job.is_claimed() or not Job.objects.take_each(others):
        raise ClaimLost


def _state(session: Session) -> tuple[Any, ...]:
    """Return what makes a session another one."""
    done = session.built_to, session.formed_to, session.live_from_sequence
    return session.pk, session.status, session.last_sequence, session.retraction_count, *done


def _refuse_what_moved(user: UserProfile, claimed: Claimed) -> None:
    if profile_of(user) != claimed.profile:
        raise Moved("The profile changed meanwhile.")
    told = {one.pk: one.journey for each in claimed.settlings for one in each.before.latest if one.pk}
    if dict(Moment.objects.filter(pk__in=told).values_list("pk", "journey")) != told:
        raise Moved("Moments that the engine was told of are gone.")


Steps = Mapping[tuple[int, str], Job]  # by the primary key of the session, and the process


def _step_jobs(settlings: Sequence[Settling]) -> Steps:
    """Return the jobs of the steps, which are running while this transaction does."""
    steps = {(one.session.pk, BUILDING): _step(one, BUILDING, build.SETTLING) for one in settlings if one.build}
    steps |= {(one.session.pk, FORMING): _step(one, FORMING, {}) for one in settlings if one.formation}
    Job.objects.bulk_create(steps.values())
    return steps


def _step(one: Settling, process: str, params: dict[str, Any]) -> Job:
    now = timezone.now()
    return Job(
        process=process,
        user_id=one.session.user_id,
        session=one.session,
        status=Job.Status.PROCESSING,
        force=True,
        params=params,
        attempts=1,
        started_at=now,
        heartbeat_at=now,
        requested_by=one.job.process,
        key_id=one.job.key_id,
        trace=one.job.trace,
    )


Results = dict[Job, dict[str, Any]]


def _store_moments(user: UserProfile, settlings: Sequence[Settling], steps: Steps) -> Results:
    """Write moments and profile, one version of it a build."""
    builds = [(one, steps[one.session.pk, BUILDING], *one.build) for one in settlings if one.build]
    if not builds:
        return {}
    stored = store_each([Division(step, input, built) for _, step, input, built in builds])
    Moment.objects.relink(user.pk, list(chain.from_iterable(stored)))
    versions, keys = list[ProfileVersion](), dict[int, int]()
    for one, step, input, built in builds:
        _write_lines(user, one, step, keys)
        versions.append(user.version(f"job:{step.job_id}"))
        profile = built.profile
        user.learn(summary=profile.summary, interests=profile.interests, preferred_topics=profile.preferred_topics)
        one.session.built_to = input.last_sequence
        one.session.built_message_count = one.session.message_count
        one.session.built_total_tokens = one.session.total_tokens
    user.versions.bulk_create(versions)
    user.save(update_fields=[*LEARNED, "updated_at"])
    each = zip(builds, stored, strict=True)
    return {step: build.result_of(input, built, moments) for (_, step, input, built), moments in each}


def _write_lines(user: UserProfile, one: Settling, step: Job, keys: dict[int, int]) -> None:
    """Keep the lines that a build changed.

    Args:
        user: whose profile it is.
        one: the session.
        step: the job of the build.
        keys: primary keys of the lines that were kept before, by the numbers that they were known by; more are added.
    """
    assert one.build is not None
    input, built = one.build
    lines = built.profile.lines
    if lines == input.profile.lines:
        return
    kept = [_with_keys(line, keys) for line in lines]
    rows = write_lines(user, kept, line_writer(step, input, one.session, built.engine))
    both = zip(one.lines, kept, strict=True)
    keys.update({carried.key: rows[line].pk for carried, line in both if carried.key and line in rows})


def _with_keys(line: Line, keys: Mapping[int, int]) -> Line:
    """Return a line with the keys of rows in place of the numbers that stood for them."""
    return replace(line, key=keys.get(line.key or 0, line.key), before=keys.get(line.before or 0, line.before))


def _form(job: Job, settlings: Sequence[Settling], steps: Steps) -> Results:
    """Add what was formed, and count from there."""
    formed = [(one, steps[one.session.pk, FORMING], *one.formation) for one in settlings if one.formation]
    atoms = [form.atoms_of(step, input, made) for _, step, input, made in formed]
    by_stream: dict[int, tuple[MemoryStream, list[MemoryAtom]]] = {}
    for (_, _, input, made), new in zip(formed, atoms, strict=True):
        for stream, items in form.by_stream(input, made, new):
            by_stream.setdefault(stream.pk, (stream, []))[1].extend(items)
    add_to_each(list(by_stream.values()), requested_by=f"job:{job.job_id}")
    for session in (one.session for one, *_ in formed):  # behind what was formed are system turns alone
        session.formed_to, session.formed_message_count = session.last_sequence, session.message_count
        session.formed_weighted_tokens = session.weighted_tokens
    each = zip(formed, atoms, strict=True)
    return {step: form.result_of(input, made, new, ended=0) for (_, step, input, made), new in each}


def _leave_digests(settlings: Sequence[Settling]) -> Results:
    """Leave the checkpoints, and what is to be learned."""
    digests = [(one, *one.digest) for one in settlings if one.digest]
    events = [
        (PartitionEvent.of_digest(made.context, made.lessons, input.turns, session=one.session, cleared=True), input)
        for one, input, made in digests
    ]
    leave_each([(event, input.turns.stop - 1) for event, input in events])
    return {one.job: learn(one.job, input, made) for one, input, made in digests}


def _update_sessions(settlings: Sequence[Settling]) -> None:
    """Clear the sessions: nothing of them is live."""
    for session in (one.session for one in settlings):
        session.live_from_sequence, session.live_tokens = session.last_sequence + 1, 0
        session.summarised_to = max(session.summarised_to, session.last_sequence)
        session.status = Session.Status.CLEARED
    update_rows([one.session for one in settlings], WRITTEN)


def _tell(results: Results) -> None:
    """Say in the event log what was done."""
    types = {BUILDING: build.BUILT, FORMING: form.FORMED}
    events = [
        Event(
            type=types.get(job.process, SETTLED),
            actor=f"job:{job.job_id}",
            user_pk=job.user_id,
            session_pk=job.session_id,
            payload=result,
        )
        for job, result in results.items()
    ]
    WebhookDelivery.objects.queue_each(Event.objects.bulk_create(events))
