"""`rebuild_profile`: builds are replayed into a profile, after a retraction set the profile back.

Only the profile part of a build is done again, a build a run: its moments stay as they are. What is left to be replayed
stands in the job's params, oldest first.
"""

from dataclasses import dataclass

from moments_app.engines import Caller
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.calls.profile import Profile
from moments_app.engines.interface import Engine
from moments_app.jobs.process import ClaimLost, Moved, Process, ProcessInput, Progress, Skipped, complete
from moments_app.models import Job, Moment, PromptVersion
from moments_app.moments.division import Chunk, builder, builder_prompt, chunks_of, line_writer, merged, profile_of
from moments_app.moments.profile_lines import known_profile, write_lines
from sessions_app.models import Message, Session, UserProfile
from sessions_app.retention.read_archived import with_every_text

BUILDS = "builds"  # in a job's params: ids of the builds that are to be replayed, oldest first


@dataclass(frozen=True)
class ReplayInput(ProcessInput):
    """The input of a run.

    Args:
        build: id of the job whose turns are replayed.
        left: ids of those that come after it.
        session: of the build, with its counters at the claim.
        profile: at that time.
        chunks: its turns, one engine call each.
    """

    prompt_version: PromptVersion
    build: str
    left: list[str]
    session: Session
    profile: Profile
    chunks: list[Chunk]


@dataclass(frozen=True)
class Replayed:
    """The profile with the replayed build in it, and who wrote that."""

    profile: Profile
    engine: str


class RebuildProfile(Process[ReplayInput, Replayed]):
    """Replays builds into a profile, a build a run."""

    name = "rebuild_profile"

    def caller(self, job: Job) -> Caller:
        return builder()

    def claim(self, job: Job) -> ReplayInput | Skipped:
        """Read the turns of the first build that is still there, also those that are archived.

        Raises:
            ArchiveError: some are archived, and can't be read.
        """
        user = _user_of(job)
        builds: list[str] = job.params.get(BUILDS, [])
        for position, build in enumerate(builds):
            moments = Moment.objects.for_user(user).filter(job__job_id=build).select_related("source_session")
            session = moments[0].source_session if moments else None
            shown = _shown(session, [moment for moment in moments if moment.source_session_id]) if session else []
            if session and shown:
                return ReplayInput(
                    prompt_version=builder_prompt(session),
                    build=build,
                    left=builds[position + 1 :],
                    session=session,
                    profile=known_profile(user),
                    chunks=chunks_of(shown, user.zone),
                )
        return Skipped("no build is left whose turns are there")

    def think(self, input: ReplayInput, engine: Engine, progress: Progress) -> Replayed:
        """Call the engine for each chunk, carrying the profile from call to call."""
        profile = input.profile
        for number, chunk in enumerate(input.chunks):
            progress(number, len(input.chunks))
            answer = engine.build_moments(MomentRequest(chunk.turns, profile, Journey(), input.prompt_version.content))
            profile = merged(profile, answer, chunk.sequences)
        return Replayed(profile, engine.name)

    def commit(self, job: Job, input: ReplayInput, answer: Replayed) -> None:
        """Take the profile in, ask for the next build's, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the person is gone.
            Moved: the profile changed, or turns of the session were retracted, while the engine was thinking.
        """
        user = UserProfile.objects.locked().filter(pk=_user_of(job).pk).first()
        if user is None or not job.is_claimed():
            raise ClaimLost
        same = Session.objects.filter(pk=input.session.pk, retraction_count=input.session.retraction_count)
        if profile_of(user) != input.profile or not same.exists():
            raise Moved("The profile or the turns changed while the engine was thinking.")
        profile = answer.profile
        write_lines(user, profile.lines, line_writer(job, input, input.session, answer.engine))
        user.merge(
            summary=profile.summary,
            interests=profile.interests,
            preferred_topics=profile.preferred_topics,
            actor=f"job:{job.job_id}",
        )
        complete(job, "profile_rebuilt", {BUILDS: [input.build], "left": len(input.left)})
        if input.left:
            params = {BUILDS: input.left}
            Job.objects.request(self.name, user_id=user.pk, requested_by=job.requested_by, force=True, params=params)


def _user_of(job: Job) -> UserProfile:
    assert job.user is not None  # a profile is a person's
    return job.user


def _shown(session: Session, moments: list[Moment]) -> list[Message]:
    first, last = min(m.first_sequence for m in moments), max(m.last_sequence for m in moments)
    turns = Message.objects.said_at(session, sequence__range=(first, last)).believed()
    return with_every_text(session.user, turns.exclude(role=Message.Role.SYSTEM).order_by("sequence"))
