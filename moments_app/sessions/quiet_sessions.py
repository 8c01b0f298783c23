"""Read the quiet sessions that one job settles: as many as fit into one call, or a part of a long one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from django.conf import settings
from django.db.models import Q

from moments_app.jobs.process import CorrectionState, ProcessInput, correction_state
from moments_app.models import EpisodeDraft, Job, MemoryAtom, MemoryStream, PromptVersion
from moments_app.moments.division import BuildInput, builder_prompt, chunks_with_drafts
from moments_app.moments.journey import HistoryPosition, PriorMoments, prior_moments
from moments_app.sessions.checkpoint import DigestInput, known_texts, make_digest_input, open_items
from moments_app.streams import formation, known
from moments_app.streams.formation import FormationInput
from moments_app.turns.engine_input import pair_safe_boundary, split_turns
from moments_app.turns.platform_text import blank_platform_text
from sessions_app.models import Message, Session, UserProfile

# Limits per transaction. Appends to these sessions wait until the transaction ends.
MAX_SESSIONS = 25
MAX_TURNS = 500
MAX_SESSIONS_PER_CALL = 8  # maximum sessions per call, so that the model answers within ENGINE__TIMEOUT_SECONDS


@dataclass
class QuietSession:
    """A session to settle, in its state at the time of the claim.

    Args:
        turns: the turns that are in no moment or that no formation has received, oldest first.
        read: the same turns as engines read them, keyed by sequence. A turn with only platform text is blank.
        last_sequence: the sequence number of the last turn in this run.
        before: the moments before these turns.
        build: the input for a build of the turns that are in no moment.
        formation: the input for a formation of the turns that no formation has received.
        digest: the input of the checkpoint of the live turns; None if more turns follow.
        opened: open tasks and problems that formations found in the live turns.
    """

    job: Job
    session: Session
    turns: Sequence[Message]
    read: Mapping[int, Message]
    last_sequence: int
    before: PriorMoments = field(default_factory=PriorMoments)
    build: BuildInput | None = None
    formation: FormationInput | None = None
    digest: DigestInput | None = None
    opened: Sequence[MemoryAtom] = ()

    @property
    def is_whole(self) -> bool:
        """Whether this run includes all remaining turns."""
        return self.last_sequence == self.session.last_sequence

    @property
    def unbuilt(self) -> list[Message]:
        """The turns that are in no moment, except system turns."""
        return [turn for turn in self._said if turn.sequence > self.session.built_to]

    @property
    def unformed(self) -> list[Message]:
        """The turns that no formation has received. Empty if memory formation is disabled."""
        wanted = settings.MEMORY_FORMATION.enabled
        return [turn for turn in self._said if wanted and turn.sequence > self.session.formed_to]

    @property
    def live(self) -> list[Message]:
        return [turn for turn in self.unbuilt if turn.sequence >= self.session.live_from_sequence]

    @property
    def _said(self) -> list[Message]:
        return [turn for turn in self.turns if turn.role != Message.Role.SYSTEM]

    def shown(self, turns: Sequence[Message]) -> list[Message]:
        """Return turns as engines read them, without those that have only platform text."""
        return [left for turn in turns if (left := self.read[turn.sequence]) is turn or left.content]

    @property
    def position(self) -> HistoryPosition:
        until = max((turn.created_at for turn in self.unbuilt), default=self.session.last_activity_at)
        return HistoryPosition(self.session.pk, self.session.built_to + 1, until)


@dataclass(frozen=True)
class SettleInput(ProcessInput):
    """A person's sessions to settle: the job's session, followed by others in the order in which their jobs are due."""

    user: UserProfile
    sessions: Sequence[QuietSession]
    corrections: CorrectionState  # state before the turns were read
    prompts: Mapping[str, PromptVersion]  # keyed by the purpose of the call

    def prompt_for(self, purpose: str) -> PromptVersion | None:
        return self.prompts.get(purpose)


def claim_sessions(job: Job, *, limit: int) -> SettleInput | None:
    """Return a job's session and other due sessions of its person; None if the job's own session is not idle."""
    assert job.user_id is not None
    user = UserProfile.objects.get(pk=job.user_id)
    corrections = correction_state(user)
    sessions = _read(user, _fitting(user, _jobs(job, limit)))
    if not sessions or sessions[0].job.pk != job.pk:
        return None
    first = sessions[0].session
    building, forming = builder_prompt(first), formation.formation_prompt(first)
    _set_builds(sessions, building, corrections)
    _set_formations(sessions, forming)
    _set_digests(sessions, building, corrections)
    prompts = {"moment-builder": building, "memory-extraction": forming}
    return SettleInput(None, user, sessions, corrections, prompts)


def _jobs(job: Job, limit: int) -> dict[int, Job]:
    """Return the job and the person's other due jobs that have not failed, keyed by session."""
    due = Job.objects.due().filter(process=job.process, user=job.user_id, session__isnull=False, attempts=0)
    others = due.exclude(pk=job.pk).order_by("run_after", "id")[: limit - 1]
    return {one.session_id: one for one in [job, *others] if one.session_id is not None}


def _fitting(user: UserProfile, jobs: Mapping[int, Job]) -> list[tuple[Job, Session]]:
    """Return the idle sessions of these jobs: at least the first, and as many as fit into one call."""
    idle = Session.objects.for_user(user).idle().in_bulk(jobs)
    found: list[tuple[Job, Session]] = []
    turns, tokens = MAX_TURNS, float(settings.MOMENT_BUILDER.max_input_tokens)
    for pk, job in jobs.items():
        if (session := idle.get(pk)) is None:
            continue
        unseen = session.last_sequence - _first_unseen(session) + 1
        turns, tokens = turns - unseen, tokens - unseen * session.total_tokens / session.message_count
        if found and min(turns, tokens) < 0:
            break
        session.user = user
        found.append((job, session))
    return found


def _first_unseen(session: Session) -> int:
    """Return the sequence number of the first turn that is in no moment or that no formation has received."""
    is_formed = not settings.MEMORY_FORMATION.enabled or session.message_count == session.formed_message_count
    return session.built_to + 1 if is_formed else min(session.built_to, session.formed_to) + 1


def _read(user: UserProfile, sessions: Sequence[tuple[Job, Session]]) -> list[QuietSession]:
    if not sessions:
        return []
    firsts = [(session, _first_unseen(session)) for _, session in sessions]
    unseen = [Q(session=session, sequence__range=(first, first + MAX_TURNS)) for session, first in firsts]
    found = Message.objects.for_user(user).turns().unretracted().filter(reduce(or_, unseen))
    turns = list(found.order_by("session_id", "sequence"))
    of_session: dict[int, list[Message]] = defaultdict(list)
    read: dict[int, dict[int, Message]] = defaultdict(dict)
    for turn, left in zip(turns, blank_platform_text(turns), strict=True):
        of_session[turn.session_id].append(turn)
        read[turn.session_id][turn.sequence] = left
    return [_quiet(job, session, of_session[session.pk], read[session.pk]) for job, session in sessions]


def _quiet(job: Job, session: Session, turns: Sequence[Message], read: Mapping[int, Message]) -> QuietSession:
    parts = split_turns(turns[:MAX_TURNS])
    taken = parts[0].stop if parts else 0
    if taken == len(turns):
        return QuietSession(job, session, turns, read, session.last_sequence)
    taken = pair_safe_boundary(turns, taken) or taken
    return QuietSession(job, session, turns[:taken], read, turns[taken - 1].sequence)


def _set_builds(sessions: Sequence[QuietSession], prompt: PromptVersion, corrections: CorrectionState) -> None:
    before = prior_moments(sessions[0].session.user_id, [quiet.position for quiet in sessions])
    drafts: dict[int, list[EpisodeDraft]] = defaultdict(list)
    of_sessions = EpisodeDraft.objects.filter(session__in=[quiet.session for quiet in sessions])
    for draft in of_sessions.order_by("first_sequence"):
        drafts[draft.session_id].append(draft)
    for quiet, then in zip(sessions, before, strict=True):
        quiet.before = then
        if shown := quiet.unbuilt:
            quiet.build = BuildInput(
                prompt_version=prompt,
                session=quiet.session,
                known=then.known,
                first_sequence=quiet.session.built_to + 1,
                last_sequence=quiet.last_sequence,
                chunks=chunks_with_drafts(
                    shown,
                    [quiet.read[turn.sequence] for turn in shown],
                    drafts[quiet.session.pk],
                    quiet.session.user.zone,
                ),
                corrections=corrections,
            )


def _set_formations(sessions: Sequence[QuietSession], prompt: PromptVersion) -> None:
    forming = [quiet for quiet in sessions if quiet.shown(quiet.unformed)]
    if not forming:
        return
    forming_sessions = [quiet.session for quiet in forming]
    MemoryStream.objects.ensure_for(*forming_sessions)
    fed = MemoryStream.objects.learning_from_each(forming_sessions)
    streams = [formation.by_label(fed[quiet.session.pk]) for quiet in forming]
    each = known.known_items_of(forming[0].session.user, streams)
    for quiet, own, has in zip(forming, streams, each, strict=True):
        if own:
            shown = quiet.shown(quiet.unformed)
            quiet.formation = formation.formation_input(quiet.session, quiet.unformed, shown, own, prompt, has)


def _set_digests(sessions: Sequence[QuietSession], prompt: PromptVersion, corrections: CorrectionState) -> None:
    """Set the checkpoint's input for each session that this run settles completely.

    Args:
        prompt: the prompt for the moments from which the checkpoint is derived.
    """
    whole = [quiet for quiet in sessions if quiet.is_whole]
    boundaries = Message.objects.for_user(sessions[0].session.user).partitions()
    events = boundaries.filter(session__in=[quiet.session for quiet in whole]).order_by(
        "session_id", "-sequence", "-id"
    )
    latest = {event.session_id: event for event in events.distinct("session_id")}
    said = known_texts(sessions[0].session.user_id, [(quiet.session, latest.get(quiet.session.pk)) for quiet in whole])
    opened = open_items(sessions[0].session.user_id, [quiet.session for quiet in whole])
    for quiet, text in zip(whole, said, strict=True):
        end = quiet.session.last_sequence + 1
        quiet.digest = make_digest_input(quiet.session, quiet.shown(quiet.live), end, text, prompt, corrections)
        quiet.opened = opened[quiet.session.pk]
