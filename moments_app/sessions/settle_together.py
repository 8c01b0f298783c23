"""Settling quiet sessions of a person together, where no engine has to be waited for.

What `settle` does for a session by three jobs, each with transactions of its own, is done here for as many as fit by
one claim and one commit, by as many statements as one takes. The rows that are left are the same, jobs and events
included. So is what they say: profile, journey and what streams have go from session to session.

Only plain sessions are taken: those whose steps would each be one run, and of which nothing was retracted or corrected.
A batch ends with a session that may end a fact. The others, and all where anything went wrong or moved meanwhile, are
settled one by one, as if there were nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

from django.db import transaction
from django.utils import timezone

from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.calls.profile import Line, Profile
from moments_app.engines.interface import Engine
from moments_app.jobs.process import ClaimLost, Moved
from moments_app.models import Job, MemoryAtom, MemoryStream, Moment, PromptVersion, WebhookDelivery
from moments_app.models.embedding import ask_to_embed
from moments_app.moments import division
from moments_app.moments.division import (
    BuildInput,
    Built,
    Division,
    builder,
    chunks_read,
    divide,
    line_writer,
    profile_of,
    store_each,
)
from moments_app.moments.journey import Told
from moments_app.moments.partition import PartitionEvent, leave_each
from moments_app.moments.profile_lines import write_lines
from moments_app.moments.profile_phrases import Added, write_phrases
from moments_app.sessions.checkpoint import (
    digest,
    digester,
    input_of,
    learn,
)
from moments_app.sessions.quiet_sessions import BUILDING, FORMING, Claimed, Settling, claim, said
from moments_app.streams import formation
from moments_app.streams.add_atoms import add_to_each
from moments_app.streams.formation import FormationInput, Formed
from moments_app.streams.known_so_far import KnownSoFar
from sessions_app.copy_rows import update_rows
from sessions_app.insert import insert_those_missing
from sessions_app.models import Event, Message, ProfileVersion, Session, UserProfile
from sessions_app.models.user_profile import LEARNED

SETTLED = "session_settled"  # in the event log
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
        claimed = claim(job)
    if claimed is None:
        return False
    thought = replace(claimed, settlings=_think(claimed))
    with transaction.atomic():
        _commit(job, thought)
    return True


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
        if one.formation and not claimed.streams.add(formation.atoms_of(one.job, *one.formation)):
            return claimed.settlings[:number]
    return claimed.settlings


def _unrecorded(_call: object) -> None:
    """Leave a call unrecorded: an engine in this process makes none."""


def _built(
    one: Settling, profile: Profile, new: Sequence[Told], prompt: PromptVersion, engine: Engine
) -> tuple[BuildInput, Built]:
    shown = said(one.unbuilt)
    input = BuildInput(
        prompt_version=prompt,
        session=one.session,
        profile=profile,
        known=one.before.with_new(new, one.place.until).known,
        first_sequence=one.session.built_to + 1,
        last_sequence=one.unbuilt[-1].sequence,
        chunks=chunks_read(shown, [one.read[turn.sequence] for turn in shown], one.session.user.zone),
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
    streams = formation.labelled(one.streams)
    if not streams:
        return None
    input = formation.formation_input(one.session, one.unformed, shown, streams, prompt, so_far.known(streams))
    return input, formation.form(input, engine, _no_progress)


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
    """Return the jobs of the steps, which are running while this transaction does.

    Raises:
        Moved: somebody asked for one of them meanwhile.
    """
    steps = {(one.session.pk, BUILDING): _step(one, BUILDING, division.SETTLING) for one in settlings if one.build}
    steps |= {(one.session.pk, FORMING): _step(one, FORMING, {}) for one in settlings if one.formation}
    if len(insert_those_missing(list(steps.values()), named_by="job_id")) < len(steps):
        raise Moved("A step of a session was asked for meanwhile.")
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
    write_phrases(user, [Added(built.profile.added, step, one.session) for one, step, _, built in builds])
    user.versions.bulk_create(versions)
    user.save(update_fields=[*LEARNED, "updated_at"])
    each = zip(builds, stored, strict=True)
    return {step: division.result_of(input, built, moments) for (_, step, input, built), moments in each}


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
    atoms = [formation.atoms_of(step, input, made) for _, step, input, made in formed]
    by_stream: dict[int, tuple[MemoryStream, list[MemoryAtom]]] = {}
    for (_, _, input, made), new in zip(formed, atoms, strict=True):
        for stream, items in formation.by_stream(input, made, new):
            by_stream.setdefault(stream.pk, (stream, []))[1].extend(items)
    add_to_each(list(by_stream.values()), requested_by=f"job:{job.job_id}")
    for session in (one.session for one, *_ in formed):  # behind what was formed are system turns alone
        session.formed_to, session.formed_message_count = session.last_sequence, session.message_count
        session.formed_weighted_tokens = session.weighted_tokens
    each = zip(formed, atoms, strict=True)
    return {step: formation.result_of(input, made, new, ended=0) for (_, step, input, made), new in each}


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
    types = {BUILDING: division.BUILT, FORMING: formation.FORMED}
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
