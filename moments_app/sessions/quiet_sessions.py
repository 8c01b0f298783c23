"""Quiet sessions of a person that can be settled together: which they are, and what is read of them.

See `settle_together`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from django.conf import settings
from django.db.models import Q

from moments_app.engines.calls.profile import Line, Profile
from moments_app.jobs.process import ClaimLost
from moments_app.models import CorrectedTurn, Job, MemoryStream, PromptVersion
from moments_app.moments import division
from moments_app.moments.division import (
    BuildInput,
    Built,
    builder_prompt,
)
from moments_app.moments.journey import Before, Place, before_each
from moments_app.moments.partition import known_at
from moments_app.moments.profile_lines import known_profile
from moments_app.sessions.checkpoint import (
    SHOWN_TURNS,
    Digested,
    DigestInput,
    digest_prompt,
)
from moments_app.streams import formation
from moments_app.streams.formation import FormationInput, Formed
from moments_app.streams.known_so_far import KnownSoFar
from moments_app.turns.platform_text import blank_platform_text
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.session import FEWEST_TURNS

# Of one transaction: it takes well under a second, for which an append to one of the sessions would have to wait.
MOST_SESSIONS = 25
MOST_TURNS = 500
BUILDING, FORMING = "build_moments", "form_memories"


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
        return [turn for turn in said(self.turns) if wanted and turn.sequence > self.session.formed_to]

    @property
    def live(self) -> list[Message]:
        """The latest turns of the live window, as far as an engine is shown them."""
        live = [turn for turn in said(self.turns) if turn.sequence >= self.session.live_from_sequence]
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
        fits = division.fitting(unbuilt, division.MAX_TURNS) == len(unbuilt) and len(unformed) <= formation.MAX_TURNS
        is_formed = self.session.message_count == self.session.formed_message_count
        forms = bool(self.shown(unformed)) or is_formed or not settings.MEMORY_FORMATION.enabled
        return fits and forms and (bool(said(unbuilt)) or not unbuilt) and bool(self.shown(self.live))

    @property
    def place(self) -> Place:
        """Where its unbuilt turns stand in time."""
        until = max((turn.created_at for turn in said(self.unbuilt)), default=self.turns[-1].created_at)
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


def said(turns: Iterable[Message]) -> list[Message]:
    return [turn for turn in turns if turn.role != Message.Role.SYSTEM]


# --- claim ---


def claim(job: Job) -> Claimed | None:
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
    prompts = builder_prompt(first), formation.formation_prompt(first), digest_prompt(first)
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
    return job.force or max(session.live_count, session.unbuilt_count) >= FEWEST_TURNS


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
