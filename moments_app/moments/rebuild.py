"""`rebuild_moments`: the moments that a session has are made anew, by the prompt and the engine in force now.

A run takes the turns of one build again, in conversation order, and in one transaction the new moments stand where the
old ones stood. So an engine that fails leaves them as they were. The profile stays: it was told of these turns before,
and a retraction has to find by whom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from moments_app.engines import Caller, language_model
from moments_app.engines.interface import Engine
from moments_app.jobs.process import Moved, Skipped, complete, locked_session
from moments_app.models import Job, Moment, PromptVersion
from moments_app.models.embedding import ask_to_embed
from moments_app.moments import build as build_moments
from moments_app.moments.journey import known_before
from moments_app.moments.mentions import mentions, take_keys_out
from moments_app.moments.partition import PartitionEvent, retell
from sessions_app.models import Message, Session, UserProfile

NAME = "rebuild_moments"
FROM = "from_sequence"  # in a job's params: moments before this are made anew already


@dataclass(frozen=True)
class Work:
    """The input of a run.

    Args:
        build: what is built, as in `build_moments`.
        replaced: primary keys of the moments that it replaces, with when each was last changed.
    """

    build: build_moments.Work
    replaced: dict[int, datetime]

    @property
    def prompt_version(self) -> PromptVersion:
        return self.build.prompt_version


def caller(job: Job) -> Caller:
    """Who writes for this process."""
    return language_model(settings.MOMENT_BUILDER.model)


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads the turns of the first build that is still to be made anew.

    Raises:
        CannotRun: when the prompt resource that is set doesn't exist.
    """
    session = job.session
    assert session is not None  # it is about one, always
    sequence: int = job.params.get(FROM, 0)
    while moments := built_together(session, sequence):
        sequence = moments[-1].last_sequence + 1
        if shown := _shown(session, moments):
            return _work(session, moments, shown)
    return Skipped("no moment is left whose turns are in the transcript")


def built_together(session: Session, sequence: int) -> list[Moment]:
    """The first moments from a sequence on that one build made, without a gap: a deleted one is not wanted back."""
    start = max(sequence, session.kept_from_sequence)
    own = session.moments.filter(user_id=session.user_id, first_sequence__gte=start).order_by("first_sequence")
    found: list[Moment] = []
    for moment in own.defer("search_vector")[: build_moments.MAX_TURNS]:
        if found and not _goes_on(found, moment):
            break
        found.append(moment)
    return found


def _goes_on(moments: list[Moment], moment: Moment) -> bool:
    first, last = moments[0], moments[-1]
    fits = moment.last_sequence - first.first_sequence < build_moments.MAX_TURNS
    return fits and moment.job_id == first.job_id and moment.first_sequence == last.last_sequence + 1


def _shown(session: Session, moments: list[Moment]) -> list[Message]:
    turns = session.messages.turns().believed().exclude(role=Message.Role.SYSTEM)
    stretch = (moments[0].first_sequence, moments[-1].last_sequence)
    return list(turns.filter(user_id=session.user_id, sequence__range=stretch).order_by("sequence"))


def _work(session: Session, moments: list[Moment], shown: list[Message]) -> Work:
    until = max(turn.created_at for turn in shown)
    build = build_moments.Work(
        session=session,
        profile=build_moments.profile_of(session.user),
        known=known_before(session, moments[0].first_sequence, until),
        prompt_version=build_moments.prompt(),
        first_sequence=moments[0].first_sequence,
        last_sequence=moments[-1].last_sequence,
        chunks=build_moments.chunks_of(shown),
        is_cut=False,
        is_again=True,
    )
    return Work(build, {moment.pk: moment.updated_at for moment in moments})


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> build_moments.Built:
    """Calls the engine for each chunk, as a build does.

    Raises:
        EngineError: when one of the calls gave no valid answer; nothing is kept of the others.
    """
    return build_moments.think(work.build, engine, progress)


# --- commit ---


def commit(job: Job, work: Work, built: build_moments.Built) -> None:
    """Puts the new moments in the place of the old ones, asks for the next build's, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: one of the moments was changed or deleted, or turns were retracted, while the engine was thinking.
    """
    session = locked_session(job)
    user = UserProfile.objects.locked().get(pk=session.user_id)  # whoever changes the chain holds it
    replaced = list(session.moments.filter(pk__in=work.replaced).defer("search_vector"))
    if {moment.pk: moment.updated_at for moment in replaced} != work.replaced:
        raise Moved("The session's moments changed while the engine was thinking.")
    if not work.build.known.holds():
        raise Moved("Moments that the engine was told of are gone.")
    Moment.objects.filter(pk__in=work.replaced).delete()
    moments = build_moments.store_moments(job, work.build, built)
    Moment.objects.relink(user.pk, [*replaced, *moments])
    _tell_anew(session, {moment.key for moment in replaced}, moments, built.journey)
    user.save(update_fields=["updated_at"])  # contexts that were kept are made anew
    result = {
        "moment_keys": [moment.key for moment in moments],
        "moments_replaced": len(work.replaced),
        "first_sequence": work.build.first_sequence,
        "last_sequence": work.build.last_sequence,
        "engine": built.engine,
        "engine_calls": len(work.build.chunks),
    }
    complete(job, "moments_rebuilt", result)
    ask_to_embed(f"job:{job.job_id}", user_id=user.pk)
    _follow_up(job, session, work)


def _tell_anew(session: Session, old: set[str], moments: list[Moment], journey: str) -> None:
    """Has the session's partition events name the new moments, and nothing elsewhere those that are gone."""
    for event in session.messages.partitions().filter(payload__moment_keys__has_any_keys=list(old)):
        payload = event.payload or {}
        left = set(payload["moment_keys"]) - old
        named = [*session.moments.filter(key__in=left), *moments]
        named.sort(key=lambda moment: moment.first_sequence)
        retell(event, payload | PartitionEvent.of_build(named, journey=journey, session=session).told)
    gone = old - {moment.key for moment in moments}
    own = session.messages.partitions().filter(payload__last_n_moment_keys__has_any_keys=list(gone))
    for row in [*own, *mentions(session, list(gone))]:
        take_keys_out(row, gone)


def _follow_up(job: Job, session: Session, work: Work) -> None:
    following = work.build.last_sequence + 1
    if built_together(session, following):
        params = {FROM: following}
        Job.objects.request(NAME, session, requested_by=job.requested_by, force=True, params=params)


# --- when it came to nothing ---


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: nothing is written before the commit."""
