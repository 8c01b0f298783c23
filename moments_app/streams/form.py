"""Extract facts and observations from new turns into the streams that the session feeds.

All streams share one engine call, except those with their own model. Each such model adds a call. The shared call also
drafts episodes from the turns. A build publishes the drafts as moments. Invalid statements are counted in the job's
result by reason.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.db.models import FloatField, Max, Q, QuerySet, Sum
from django.db.models.functions import Cast, Ceil

from moments_app.engines import EngineFactory, engine_name, language_model
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    CorrectionState,
    InputChanged,
    Process,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
    Workload,
    complete,
    correction_state,
    locked_session,
    session_of,
    settling_is_one_call,
    tokens_of,
    turns_to_estimate,
)
from moments_app.models import Cause, EpisodeDraft, Job, MemoryAtom, MemoryStream, PromptResource
from moments_app.models.job import JobQuerySet
from moments_app.moments.division import BuildInput, BuildResult, builder_prompt, drafts_of, split_chunks
from moments_app.moments.journey import known_history
from moments_app.streams.edit import evict_all
from moments_app.streams.formation import (
    FORMED,
    MAX_TURNS,
    UNFORMED,
    FormationInput,
    FormationResult,
    by_label,
    call_engine,
    formation_input,
    formation_prompt,
    model_with_open_circuit,
    set_formed_to,
    store_formations,
)
from moments_app.streams.known import known_items_of
from moments_app.turns.engine_input import split_turns
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.message import MessageQuerySet, SequenceRange
from sessions_app.models.session import MIN_TURNS
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.read_archived import MISSING, with_readable_text

MAX_SESSIONS = 500  # maximum sessions per run
PROMPT_TOKENS = 1_450  # estimated tokens of the prompt, streams and known items of a call
WITHDRAWN_RANGES = "again"  # key in job params: [first, last] ranges of turns whose memories were withdrawn


class FormMemories(Process[FormationInput, FormationResult]):
    name = "form_memories"
    title = "Extract facts"
    output = "facts from new messages"
    prompt_purpose = PromptResource.Purpose.MEMORY_EXTRACTION
    sweep_timing = Timing(minutes=10)

    def engine_factory(self, job: Job) -> EngineFactory:
        # If the circuit of a stream's own model is open, the job must wait for it.
        return model_with_open_circuit(job) or language_model(settings.ENGINE.model)

    def jobs_of_same_engine(self, job: Job) -> JobQuerySet:
        # Only this job waits for the circuit, because other jobs may not use this model.
        return Job.objects.filter(pk=job.pk) if model_with_open_circuit(job) else super().jobs_of_same_engine(job)

    def claim(self, job: Job) -> FormationInput | Skipped:
        session = session_of(job)
        if not job.force and not is_due(session):
            return Skipped("not due: there are too few new turns and tokens")
        corrections = correction_state(session.user)
        if withdrawn := _withdrawn_turns(session, job.params.get(WITHDRAWN_RANGES, [])):
            turns, is_cut = withdrawn.turns, withdrawn.is_cut
        else:
            waiting = list(_unformed(session)[: MAX_TURNS + 1])
            turns = _of_one_call(waiting)
            is_cut = len(waiting) > len(turns)
        shown = drop_platform_text(turns)
        if not shown:
            set_formed_to(session, turns[-1].sequence if turns else session.last_sequence)
            return Skipped("no turns to extract facts from")
        MemoryStream.objects.ensure_for(session)
        streams = by_label(MemoryStream.objects.visible_to(session).extracting().order_by("id"))
        if not streams:
            set_formed_to(session, turns[-1].sequence)
            return Skipped("no memory text is in use")
        [known] = known_items_of(session.user, [streams])
        input = formation_input(session, turns, shown, streams, formation_prompt(session), known)
        if withdrawn:
            input = replace(input, remaining=withdrawn.rest, unreadable=withdrawn.unreadable)
        else:
            input = replace(input, episodes=_episodes(session, turns, shown, corrections))
        return replace(input, is_cut=is_cut)

    def think(self, input: FormationInput, engine: Engine, progress: Progress) -> FormationResult:
        return call_engine(input, engine, progress)

    def commit(self, job: Job, input: FormationInput, answer: FormationResult) -> None:
        """Add the atoms, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the session was deleted.
            InputChanged: another formation has processed these turns.
        """
        session = locked_session(job)
        if session.formed_to != input.session.formed_to:
            raise InputChanged("Another job already extracted facts from these turns.")
        # Lock the person, as corrections do. A later correction sees the new atoms, and these are checked against
        # earlier corrections.
        UserProfile.objects.locked().get(pk=session.user_id)
        [result] = store_formations([(job, input, answer)], requested_by=f"job:{job.job_id}")
        if input.remaining is None:
            set_formed_to(session, input.last_sequence)
        if input.episodes and answer.built:
            _store_drafts(job, session, input, answer.built)
        complete(job, FORMED, result)
        _follow_up(job, session, input)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        return is_due(session)

    def rewind(self, job: Job) -> bool:
        done = Job.objects.filter(session=job.session, status=Job.Status.COMPLETED)
        formed = done.filter(Q(process=self.name) | Q(result__has_key=FORMED))
        if (last := formed.order_by("-id").first()) is None:
            return False
        result = last.result.get(FORMED, last.result)
        # Evict these items, because the engine would otherwise receive them as known items.
        evict_all(list(MemoryAtom.objects.filter(job=last)), Cause(f"job:{job.job_id}"))
        job.params = {WITHDRAWN_RANGES: [[result["first_sequence"], result["last_sequence"]]]}
        return True

    def workload(self, *, everything: bool) -> Workload | None:
        if settling_is_one_call():  # `settle` estimates the calls in this case
            return None
        unformed = Cast(turns_to_estimate(UNFORMED, everything=everything), FloatField())
        calls = Sum(Ceil(unformed / MAX_TURNS))
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(tokens_of(unformed)), usual_answer=1_900, prompt_tokens=PROMPT_TOKENS)

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue the extraction of facts from idle sessions, unless they are about to be brought up to date."""
        cold = list(_cold()[:MAX_SESSIONS]) if settings.MEMORY_FORMATION.enabled else []
        for session in () if dry_run else cold:
            Job.objects.request(self.name, session, requested_by=self.name, force=True)
        return QueuedJobs(len(cold))


def is_due(session: Session) -> bool:
    """Return whether a formation starts automatically: after enough turns or weighted tokens since the last one."""
    conf = settings.MEMORY_FORMATION
    turns = session.message_count - session.formed_message_count
    if not conf.enabled or turns < MIN_TURNS:
        return False
    return (
        turns >= conf.message_interval
        or session.weighted_tokens - session.formed_weighted_tokens >= conf.token_interval
    )


def _cold() -> QuerySet[Session]:
    """Return `cold()` sessions. If settling combines its calls, exclude the sessions that it handles soon."""
    cold = Session.objects.cold()
    if not (settings.ENGINE.uses_model and settings.ENGINE.combines_calls):
        return cold
    return cold.exclude(pk__in=Session.objects.settled_soon().values("pk"))


# --- claim ---


def _unformed(session: Session) -> QuerySet[Message]:
    turns = session.messages.turns().filter(user_id=session.user_id, sequence__gt=session.formed_to)
    return _formable(turns)


def _of_one_call(turns: Sequence[Message]) -> Sequence[Message]:
    parts = split_turns(turns[:MAX_TURNS])
    return turns[: parts[0].stop] if parts else ()


def _formable(turns: MessageQuerySet) -> QuerySet[Message]:
    return turns.unretracted().exclude(role=Message.Role.SYSTEM).order_by("sequence")


def _episodes(
    session: Session, turns: Sequence[Message], shown: Sequence[Message], corrections: CorrectionState
) -> BuildInput | None:
    """Return the input for drafting episodes in the same call, from new turns that are in no moment or draft."""
    if not (
        settling_is_one_call() and settings.MOMENT_BUILDER.enabled
    ):  # the built-in rules read turns again at no cost
        return None
    drafted_to = EpisodeDraft.objects.for_session(session).aggregate(last=Max("last_sequence"))["last"]
    # If earlier turns have no moment, the first draft leaves a gap. The build that publishes the draft calls an engine
    # for the turns in the gap.
    first = max(session.built_to, session.formed_to, -1 if drafted_to is None else drafted_to) + 1
    new = [turn for turn in shown if turn.sequence >= first]
    chunks = split_chunks(new, new, session.user.zone) if new else []
    if len(chunks) != 1:
        return None
    return BuildInput(
        prompt_version=builder_prompt(session),
        session=session,
        known=known_history(session, first, max(turn.created_at for turn in new)),
        first_sequence=first,
        last_sequence=turns[-1].sequence,
        chunks=chunks,
        corrections=corrections,
    )


@dataclass(frozen=True)
class WithdrawnTurns:
    """Turns whose memories were withdrawn and must be formed again."""

    turns: Sequence[Message]
    is_cut: bool  # whether turns of the current range remain for a later run
    rest: list[SequenceRange]  # ranges of later runs
    unreadable: list[SequenceRange]  # ranges of archived turns that were skipped because they can't be read


def _withdrawn_turns(session: Session, ranges: Sequence[Sequence[int]]) -> WithdrawnTurns | None:
    """Return the first readable turns in the ranges that contain more than platform text; None if there are none.

    Raises:
        ArchiveError: the remaining turns are archived and can't be read.
    """
    unreadable: list[SequenceRange] = []
    waiting = deque((first, last) for first, last in ranges)
    while waiting:
        first, last = waiting.popleft()
        found = list(_formable(Message.objects.all_turns_of(session, sequence__range=(first, last)))[: MAX_TURNS + 1])
        taken = _of_one_call(found)
        if is_cut := len(found) > len(taken):
            waiting.appendleft((found[len(taken)].sequence, last))
        turns, missing = with_readable_text(session.user, taken)
        unreadable += missing
        if drop_platform_text(turns):
            return WithdrawnTurns(turns, is_cut, list(waiting), unreadable)
    if unreadable:
        raise ArchiveError(MISSING)
    return None


# --- commit ---


def _store_drafts(job: Job, session: Session, input: FormationInput, built: BuildResult) -> None:
    """Store the episodes for a later build.

    Raises:
        InputChanged: moments of these turns were built or deleted in the meantime.
    """
    assert input.episodes is not None
    if session.built_to != input.session.built_to or not input.episodes.known.is_current():
        raise InputChanged("The session's moments changed while the engine was working.")
    # If a fact was corrected in the meantime, the build calls the engine instead.
    if correction_state(session.user) == input.episodes.corrections:
        EpisodeDraft.objects.bulk_create(drafts_of(job, input.episodes, built))


def _follow_up(job: Job, session: Session, input: FormationInput) -> None:
    """Queue the next formation if this one was partial, or if enough turns arrived in the meantime."""
    rest = [*(input.remaining or ()), *input.unreadable]
    if rest or input.is_cut or is_due(session):
        params = {WITHDRAWN_RANGES: rest} if rest else {}
        forced = bool(rest) or input.is_cut
        by = f"job:{job.job_id}"
        Job.objects.request(FormMemories.name, session, requested_by=by, force=forced, params=params)
