"""`rebuild_moments` rebuilds a session's moments with the current prompt and engine.

Each run repeats one build and replaces its moments, in one transaction. The runs follow the order of the conversation.
If the engine fails, the moments remain unchanged.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from django.conf import settings

from moments_app.engines import EngineFactory, language_model
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    CorrectionState,
    InputChanged,
    Lane,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    complete,
    correction_state,
    locked_session,
    queue_embedding,
    session_of,
)
from moments_app.models import Job, Moment, PromptVersion
from moments_app.moments.division import (
    MAX_TURNS,
    BuildInput,
    BuildResult,
    builder_prompt,
    divide,
    lock_if_unchanged,
    split_chunks,
    store_moments,
)
from moments_app.moments.journey import known_history
from moments_app.moments.partition import PartitionEvent, remove_keys, rewrite, rows_with_keys
from moments_app.turns.platform_text import blank_platform_text
from sessions_app.models import Message, Session

FROM_SEQUENCE = "from_sequence"  # key in params; moments before this sequence number are already rebuilt


@dataclass(frozen=True)
class RebuildInput(ProcessInput):
    """The input of the repeated build, and the moments to replace."""

    build: BuildInput
    replaced: dict[int, datetime]  # when the moments were last changed, keyed by primary key

    def with_prompt(self, version: PromptVersion) -> Self:
        return replace(self, prompt_version=version, build=self.build.with_prompt(version))


class RebuildMoments(Process[RebuildInput, BuildResult]):
    """Replaces the moments of a session, one build per run."""

    name = "rebuild_moments"
    title = "Rebuild moments"
    output = "rebuilt moments"
    lane = Lane.BULK

    def engine_factory(self, job: Job) -> EngineFactory:
        return language_model(settings.ENGINE.model)

    def claim(self, job: Job) -> RebuildInput | Skipped:
        session = session_of(job)
        corrections = correction_state(session.user)
        sequence: int = job.params.get(FROM_SEQUENCE, 0)
        while moments := built_together(session, sequence):
            sequence = moments[-1].last_sequence + 1
            if shown := _shown(session, moments):
                return _input(session, moments, shown, corrections)
        return Skipped("no moment is left whose turns are in the transcript")

    def think(self, input: RebuildInput, engine: Engine, progress: Progress) -> BuildResult:
        return divide(input.build, engine, progress)

    def commit(self, job: Job, input: RebuildInput, answer: BuildResult) -> None:
        """Replace the old moments with the new ones, queue the next run, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the session was deleted.
            InputChanged: moments were changed or deleted, turns were retracted, or a fact was corrected meanwhile.
        """
        session = locked_session(job)
        user = lock_if_unchanged(session.user_id, input.build.corrections, builds=[input.build])
        replaced = list(session.moments.filter(pk__in=input.replaced).defer("search_vector"))
        if {moment.pk: moment.updated_at for moment in replaced} != input.replaced:
            raise InputChanged("The session's moments changed while the engine was working.")
        Moment.objects.filter(pk__in=input.replaced).delete()
        moments = store_moments(job, input.build, answer)
        Moment.objects.relink(user.pk, [*replaced, *moments])
        _rewrite_events(session, {moment.key for moment in replaced}, moments, answer.journey)
        user.save(update_fields=["updated_at"])  # invalidates cached contexts
        result = {
            "moment_keys": [moment.key for moment in moments],
            "moments_replaced": len(input.replaced),
            "first_sequence": input.build.first_sequence,
            "last_sequence": input.build.last_sequence,
            "engine": answer.engine,
            "engine_calls": len(input.build.chunks),
        }
        complete(job, "moments_rebuilt", result)
        queue_embedding(f"job:{job.job_id}", user_id=user.pk)
        _follow_up(job, session, input)


# --- claim ---


def built_together(session: Session, sequence: int) -> list[Moment]:
    """Return the first moment at or after a sequence number, and the adjacent moments from the same build."""
    # Stop at a gap. It may be a deleted moment, which must not be recreated.
    start = max(sequence, session.kept_from_sequence)
    own = session.moments.filter(user_id=session.user_id, first_sequence__gte=start).order_by("first_sequence")
    found: list[Moment] = []
    for moment in own.defer("search_vector")[:MAX_TURNS]:
        if found and not _continues(found, moment):
            break
        found.append(moment)
    return found


def _continues(moments: list[Moment], moment: Moment) -> bool:
    first, last = moments[0], moments[-1]
    fits = moment.last_sequence - first.first_sequence < MAX_TURNS
    return fits and moment.job_id == first.job_id and moment.first_sequence == last.last_sequence + 1


def _shown(session: Session, moments: list[Moment]) -> list[Message]:
    turns = session.messages.turns().unretracted().exclude(role=Message.Role.SYSTEM)
    ends = (moments[0].first_sequence, moments[-1].last_sequence)
    return list(turns.filter(user_id=session.user_id, sequence__range=ends).order_by("sequence"))


def _input(session: Session, moments: list[Moment], shown: list[Message], corrections: CorrectionState) -> RebuildInput:
    until = max(turn.created_at for turn in shown)
    build = BuildInput(
        prompt_version=builder_prompt(session),
        session=session,
        known=known_history(session, moments[0].first_sequence, until),
        first_sequence=moments[0].first_sequence,
        last_sequence=moments[-1].last_sequence,
        chunks=split_chunks(shown, blank_platform_text(shown), session.user.zone),
        corrections=corrections,
        is_rebuild=True,
    )
    return RebuildInput(build.prompt_version, build, {moment.pk: moment.updated_at for moment in moments})


# --- commit ---


def _rewrite_events(session: Session, old: set[str], moments: list[Moment], journey: str) -> None:
    """Replace the old moments with the new ones in the session's partition events. Remove old keys elsewhere."""
    events = Message.objects.boundaries_of(session)
    for event in events.filter(payload__moment_keys__has_any_keys=list(old)):
        payload = event.payload or {}
        left = set(payload["moment_keys"]) - old
        named = [*session.moments.filter(key__in=left), *moments]
        named.sort(key=lambda moment: moment.first_sequence)
        rewrite(event, payload | PartitionEvent.of_build(named, journey=journey, session=session).fields)
    gone = old - {moment.key for moment in moments}
    own = events.filter(payload__last_n_moment_keys__has_any_keys=list(gone))
    for row in [*own, *rows_with_keys(session, list(gone))]:
        remove_keys(row, gone)


def _follow_up(job: Job, session: Session, input: RebuildInput) -> None:
    following = input.build.last_sequence + 1
    if built_together(session, following):
        params = {FROM_SEQUENCE: following}
        Job.objects.request(RebuildMoments.name, session, requested_by=job.requested_by, force=True, params=params)
