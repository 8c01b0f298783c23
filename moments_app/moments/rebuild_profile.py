"""`rebuild_profile`: builds are replayed into a profile, after a retraction set the profile back.

Only the profile part of a build is done again, a build a run: its moments stay as they are. What is left to be replayed
stands in the job's params, oldest first. A build is replayed without the archived turns that can't be read, and a later
run has these: they stand there as a part of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet

from moments_app.engines import Caller
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.calls.profile import Profile
from moments_app.engines.interface import Engine
from moments_app.jobs.process import ClaimLost, Moved, Process, ProcessInput, Progress, Skipped, complete
from moments_app.models import Job, Moment, PromptVersion
from moments_app.moments.division import Chunk, builder, builder_prompt, chunks_of, line_writer, merged, profile_of
from moments_app.moments.profile_lines import known_profile, write_lines
from moments_app.moments.profile_phrases import Added, write_phrases
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.message import SequenceRange
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.read_archived import MISSING, with_readable_text

BUILDS = "builds"  # in a job's params: ids of the builds that are to be replayed, oldest first
PARTS = "parts"  # and of those that were replayed without some of their turns: ranges of these turns, by id


@dataclass(frozen=True)
class Replay:
    """A build that is to be replayed.

    Args:
        build: id of its job.
        ranges: of its turns that are; None: all.
    """

    build: str
    ranges: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class ReplayInput(ProcessInput):
    """The input of a run.

    Args:
        build: id of the job whose turns are replayed.
        left: what is to be replayed after it.
        unreadable: ranges of its turns that are archived and can't be read; they are left, too.
        session: of the build, with its counters at the claim.
        profile: at that time.
        chunks: its turns, one engine call each.
    """

    prompt_version: PromptVersion
    build: str
    left: list[Replay]
    unreadable: list[SequenceRange]
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
    makes = "rebuilt profiles"

    def caller(self, job: Job) -> Caller:
        return builder()

    def claim(self, job: Job) -> ReplayInput | Skipped:
        """Read the turns of the first build that is still there, also those that are archived.

        Raises:
            ArchiveError: what is left is archived, and can't be read.
        """
        user = _user_of(job)
        waiting, unread = _waiting(job.params), []
        for position, replay in enumerate(waiting):
            moments = Moment.objects.for_user(user).filter(job__job_id=replay.build).select_related("source_session")
            session = moments[0].source_session if moments else None
            if session is None:
                continue
            shown, unreadable = with_readable_text(user, _turns(session, moments, replay.ranges))
            if unreadable:
                unread.append(Replay(replay.build, unreadable))
            if shown:
                return ReplayInput(
                    prompt_version=builder_prompt(session),
                    build=replay.build,
                    left=[*waiting[position + 1 :], *unread],
                    unreadable=unreadable,
                    session=session,
                    profile=known_profile(user),
                    chunks=chunks_of(shown, user.zone),
                )
        if unread:
            raise ArchiveError(MISSING)
        return Skipped("no build is left whose turns are there")

    def think(self, input: ReplayInput, engine: Engine, progress: Progress) -> Replayed:
        """Call the engine for each chunk, carrying the profile from call to call."""
        profile = input.profile
        for number, chunk in enumerate(input.chunks):
            progress(number, len(input.chunks))
            answer = engine.build_moments(MomentRequest(chunk.turns, profile, Journey(), input.prompt_version.content))
            profile = merged(profile, answer, chunk)
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
        write_phrases(user, [Added(profile.added, job, input.session)])
        user.merge(
            summary=profile.summary,
            interests=profile.interests,
            preferred_topics=profile.preferred_topics,
            actor=f"job:{job.job_id}",
        )
        result: dict[str, Any] = {BUILDS: [input.build], "left": len(input.left)}
        if input.unreadable:
            result |= {"session_id": input.session.session_id, "unreadable": input.unreadable}
        complete(job, "profile_rebuilt", result)
        if input.left:
            params = _params(input.left)
            Job.objects.request(self.name, user_id=user.pk, requested_by=job.requested_by, force=True, params=params)


def _user_of(job: Job) -> UserProfile:
    assert job.user is not None  # a profile is a person's
    return job.user


def _waiting(params: dict[str, Any]) -> list[Replay]:
    """Return what a job is to replay: all of some builds, and what is missing of others."""
    builds = [Replay(build) for build in params.get(BUILDS, [])]
    parts = [Replay(build, ranges) for build, ranges in params.get(PARTS, {}).items() if Replay(build) not in builds]
    return builds + parts


def _params(replays: Sequence[Replay]) -> dict[str, Any]:
    """Return the params of a job that is to replay these."""
    params: dict[str, Any] = {BUILDS: [replay.build for replay in replays if replay.ranges is None]}
    parts = {replay.build: replay.ranges for replay in replays if replay.ranges is not None}
    return params | {PARTS: parts} if parts else params


def _turns(session: Session, moments: Iterable[Moment], ranges: Sequence[Sequence[int]] | None) -> QuerySet[Message]:
    """Return the turns of a build that are believed, of all or of some ranges."""
    own = [moment for moment in moments if moment.source_session_id]
    first, last = min(m.first_sequence for m in own), max(m.last_sequence for m in own)
    turns = Message.objects.said_at(session, sequence__range=(first, last)).believed()
    if ranges is not None:
        turns = turns.filter(reduce(or_, (Q(sequence__range=each) for each in ranges)))
    return turns.exclude(role=Message.Role.SYSTEM).order_by("sequence")
