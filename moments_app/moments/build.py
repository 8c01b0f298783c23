"""`build_moments` builds moments from a session's turns that no moment covers yet, except the lag.

A build publishes the drafts of formations, and calls the engine for turns without a draft. In one transaction, it
stores the moments, links them into the user's chain, and adds a partition event.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Sum
from django.db.models.functions import Ceil
from django.db.models.lookups import GreaterThan

from moments_app.engines import EngineFactory, engine_name, language_model
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    InputChanged,
    Process,
    Progress,
    Skipped,
    Workload,
    complete,
    correction_state,
    locked_session,
    queue_embedding,
    session_of,
    settling_is_one_call,
    tokens_of,
    turns_to_estimate,
)
from moments_app.models import EpisodeDraft, Job, Moment, PromptResource
from moments_app.moments.division import (
    BUILT,
    MAX_TURNS,
    BuildInput,
    BuildResult,
    builder_prompt,
    chunks_with_drafts,
    divide,
    lock_if_unchanged,
    result_of,
    store_moments,
)
from moments_app.moments.journey import known_history
from moments_app.moments.partition import PartitionEvent
from moments_app.turns.engine_input import pair_safe_boundary
from moments_app.turns.platform_text import blank_platform_text
from sessions_app.models import Message, Session
from sessions_app.models.session import UNBUILT

LOOK_AHEAD = 200
MAX_CALLS = 10  # maximum calls of one run; approximate, because tokens are limited instead of calls
PROMPT_TOKENS = 1_450  # estimated tokens of a call without its turns: prompt, journey, recent moments
REBUILD_TO = "again_to"  # key in params: the turn that a build must reach, because moments up to it were withdrawn


class BuildMoments(Process[BuildInput, BuildResult]):
    """Divides the waiting turns of a session into moments."""

    name = "build_moments"
    title = "Build moments"
    output = "moments of new messages"
    prompt_purpose = PromptResource.Purpose.MOMENT_BUILDER

    def engine_factory(self, job: Job) -> EngineFactory:
        return language_model(settings.ENGINE.model)

    def claim(self, job: Job) -> BuildInput | Skipped:
        session = session_of(job)
        if not job.force and not is_due(session):
            return Skipped("not due: there are too few new turns and tokens")
        corrections = correction_state(session.user)
        turns, is_cut = _turns_to_build(session, job.params)
        shown = [turn for turn in turns if turn.role != Message.Role.SYSTEM]
        if not shown:
            if not job.force:
                # Otherwise, the next append would queue a build again.
                _reset_counters(session, session)
            return Skipped("no turns are waiting, except those that have to stay live")
        return BuildInput(
            prompt_version=builder_prompt(session),
            session=session,
            known=known_history(session, _first_waiting(session), max(turn.created_at for turn in shown)),
            first_sequence=_first_waiting(session),
            last_sequence=turns[-1].sequence,
            chunks=chunks_with_drafts(
                shown, blank_platform_text(shown), list(EpisodeDraft.objects.for_session(session)), session.user.zone
            ),
            corrections=corrections,
            is_cut=is_cut,
            is_rebuild=REBUILD_TO in job.params,
        )

    def think(self, input: BuildInput, engine: Engine, progress: Progress) -> BuildResult:
        return divide(input, engine, progress)

    def commit(self, job: Job, input: BuildInput, answer: BuildResult) -> None:
        """Store the moments and the partition event, reset the counters, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the session was deleted.
            InputChanged: the session's boundary, an earlier moment or a fact changed while the engine was working.
        """
        session = locked_session(job)
        if session.built_to != input.session.built_to:
            raise InputChanged("The session's moments changed while the engine was working.")
        user = lock_if_unchanged(session.user_id, input.corrections, builds=[input])
        moments = store_moments(job, input, answer)
        Moment.objects.relink(user.pk, moments)
        user.save(update_fields=["updated_at"])  # invalidates cached contexts
        _move_boundary(job, session, input, answer, moments)
        complete(job, BUILT, result_of(input, answer, moments))
        queue_embedding(f"job:{job.job_id}", user_id=user.pk)
        _follow_up(job, session, input)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        return is_due(session)

    def rewind(self, job: Job) -> bool:
        session = session_of(job)
        newest = Moment.objects.filter(source_session=session).order_by("-last_sequence").first()
        if newest is None:
            return False
        of_build = {"job": newest.job} if newest.job else {"pk": newest.pk}
        together = Moment.objects.filter(source_session=session, **of_build)
        session.built_to = min(moment.first_sequence for moment in together) - 1
        together.delete()
        job.params = {REBUILD_TO: newest.last_sequence}
        return True

    def workload(self, *, everything: bool) -> Workload | None:
        if settling_is_one_call() and settings.MEMORY_FORMATION.enabled:  # formations write drafts of all moments
            return None
        tokens = tokens_of(turns_to_estimate(UNBUILT, everything=everything))
        max_tokens = float(settings.MOMENT_BUILDER.max_input_tokens)
        own: Any = {"filter": GreaterThan(tokens, max_tokens)} if settling_is_one_call() else {}
        engine = engine_name(settings.ENGINE.model)
        calls, shown = Sum(Ceil(tokens / max_tokens), **own), Sum(tokens, **own)
        return Workload(engine, calls, shown, usual_answer=900, prompt_tokens=PROMPT_TOKENS)


def is_due(session: Session) -> bool:
    return settings.MOMENT_BUILDER.enabled and (_due_by_turns(session) or _due_by_tokens(session))


def _due_by_turns(session: Session) -> bool:
    return session.message_count - session.built_message_count >= settings.MOMENT_BUILDER.message_threshold


def _due_by_tokens(session: Session) -> bool:
    return session.total_tokens - session.built_total_tokens >= settings.MOMENT_BUILDER.token_threshold


# --- claim ---


def _turns_to_build(session: Session, params: Mapping[str, int]) -> tuple[list[Message], bool]:
    """Return the turns for one run: those before the lag that no moment covers. Also return whether more are left."""
    live_from = first_live_sequence(session, params)
    turns_of_session = session.messages.turns().unretracted().filter(user_id=session.user_id)
    waiting = turns_of_session.filter(sequence__gte=_first_waiting(session)).order_by("sequence")
    # Also read some turns after the boundary, because tool results may move it back.
    turns = list(waiting[: MAX_TURNS + LOOK_AHEAD])
    beyond = sum(turn.sequence < live_from for turn in turns)
    fits = _count_fitting(turns[:beyond], MAX_TURNS)
    boundary = pair_safe_boundary(turns, fits) or (fits if fits < beyond else 0)
    return turns[:boundary], fits < beyond


def _count_fitting(turns: Sequence[Message], limit: int) -> int:
    """Return how many of the first `limit` turns fit into the token limit of one run."""
    remaining_tokens = MAX_CALLS * settings.MOMENT_BUILDER.max_input_tokens
    for count, turn in enumerate(turns[:limit]):
        remaining_tokens -= min(turn.tokens, settings.MOMENT_BUILDER.max_input_tokens)
        if remaining_tokens < 0:
            return count
    return min(len(turns), limit)


def first_live_sequence(session: Session, params: Mapping[str, int]) -> int:
    """Return the first sequence number to keep in the live window. `params` can override the configured lag."""
    if REBUILD_TO in params and "lag" not in params:
        return params[REBUILD_TO] + 1
    conf = settings.MOMENT_BUILDER
    few_but_large = _due_by_tokens(session) and not _due_by_turns(session)
    keep = conf.lag(session.message_count, few_but_large=few_but_large)
    return max(session.last_sequence - params.get("lag", keep), params.get(REBUILD_TO, -1)) + 1


def _first_waiting(session: Session) -> int:
    """Return the sequence number after the last covered turn. Retracted turns also count as covered."""
    return session.built_to + 1


# --- commit ---


def _move_boundary(
    job: Job, session: Session, input: BuildInput, built: BuildResult, moments: Sequence[Moment]
) -> None:
    session.built_to = input.last_sequence
    session.save(update_fields=["last_moment_message_idx"])
    EpisodeDraft.objects.publish([session])
    if settings.MOMENT_BUILDER.insert_partition_event:
        PartitionEvent.of_build(moments, journey=built.journey, session=session).store_after(input.last_sequence)
        session.begin_live_window(input.last_sequence + 1)
    if not input.is_rebuild:
        _reset_counters(session, input.session)


def _reset_counters(session: Session, then: Session) -> None:
    """Count the new turns and tokens since the claim. `then` is the session at the time of the claim."""
    session.built_message_count, session.built_total_tokens = then.message_count, then.total_tokens
    session.save(update_fields=["built_message_count", "built_total_tokens"])


def _follow_up(job: Job, session: Session, input: BuildInput) -> None:
    if input.is_cut:
        Job.objects.request(BuildMoments.name, session, requested_by=job.requested_by, force=True, params=job.params)
    elif is_due(session):
        Job.objects.request(BuildMoments.name, session, requested_by=f"job:{job.job_id}")
