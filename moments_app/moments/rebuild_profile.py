"""`rebuild_profile`: what builds told a profile is taken in once more, after a retraction set the profile back.

Only the profile part of a build is done again, a build a run: its moments stay as they are. What is left to be replayed
stands in the job's params, oldest first.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from moments_app.engines import Caller, language_model
from moments_app.engines.calls.moments import Journey, MomentRequest, Profile
from moments_app.engines.interface import Engine
from moments_app.jobs.process import ClaimLost, Moved, Skipped, complete
from moments_app.models import Job, Moment, PromptVersion
from moments_app.moments.build import Chunk, chunks_of, merged, profile_of, prompt
from sessions_app.models import Message, Session, UserProfile

NAME = "rebuild_profile"
BUILDS = "builds"  # in a job's params: ids of the builds that are to be replayed, oldest first


@dataclass(frozen=True)
class Work:
    """The input of a run.

    Args:
        build: id of the job whose turns are replayed.
        left: ids of those that come after it.
        session: of the build, with its counters at the claim.
        profile: at that time.
        chunks: its turns, one engine call each.
    """

    build: str
    left: list[str]
    session: Session
    profile: Profile
    prompt_version: PromptVersion
    chunks: list[Chunk]


def caller(job: Job) -> Caller:
    """Who writes for this process."""
    return language_model(settings.MOMENT_BUILDER.model)


def claim(job: Job) -> Work | Skipped:
    """Reads the turns of the first build that is still there.

    Raises:
        CannotRun: when the prompt resource that is set doesn't exist.
    """
    assert job.user is not None  # a profile is a person's
    builds: list[str] = job.params.get(BUILDS, [])
    for position, build in enumerate(builds):
        moments = Moment.objects.for_user(job.user).filter(job__job_id=build).select_related("source_session")
        session = moments[0].source_session if moments else None
        shown = _shown(session, [moment for moment in moments if moment.source_session_id]) if session else []
        if session and shown:
            return Work(
                build=build,
                left=builds[position + 1 :],
                session=session,
                profile=profile_of(job.user),
                prompt_version=prompt(),
                chunks=chunks_of(shown),
            )
    return Skipped("no build is left whose turns are there")


def _shown(session: Session, moments: list[Moment]) -> list[Message]:
    first, last = min(m.first_sequence for m in moments), max(m.last_sequence for m in moments)
    turns = session.messages.turns().believed().filter(sequence__range=(first, last))
    return list(turns.exclude(role=Message.Role.SYSTEM).order_by("sequence"))


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Profile:
    """Calls the engine for each chunk, carrying the profile from call to call.

    Raises:
        EngineError: when one of the calls gave no valid answer.
    """
    profile = work.profile
    for number, chunk in enumerate(work.chunks):
        progress(number, len(work.chunks))
        answer = engine.build_moments(MomentRequest(chunk.turns, profile, Journey(), work.prompt_version.content))
        profile = merged(profile, answer)
    return profile


def commit(job: Job, work: Work, profile: Profile) -> None:
    """Takes the profile in, asks for the next build's, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the person is gone.
        Moved: the profile changed, or turns of the session were retracted, while the engine was thinking.
    """
    assert job.user is not None  # a profile is a person's
    user = UserProfile.objects.locked().filter(pk=job.user.pk).first()
    if user is None or not job.is_claimed():
        raise ClaimLost
    now = Session.objects.filter(pk=work.session.pk, retraction_count=work.session.retraction_count)
    if profile_of(user) != work.profile or not now.exists():
        raise Moved("The profile or the turns changed while the engine was thinking.")
    user.merge(
        summary=profile.summary,
        interests=profile.interests,
        preferred_topics=profile.preferred_topics,
        actor=f"job:{job.job_id}",
    )
    complete(job, "profile_rebuilt", {BUILDS: [work.build], "left": len(work.left)})
    if work.left:
        params = {BUILDS: work.left}
        Job.objects.request(NAME, user_id=user.pk, requested_by=job.requested_by, force=True, params=params)


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: nothing is written before the commit."""
