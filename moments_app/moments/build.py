"""`build_moments`: the turns of a session that no moment holds yet, less the lag, become moments.

Leaves moments linked into the user's chain, a merged profile, and a partition event, all in one transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from django.conf import settings
from django.db.models import QuerySet

from moments_app.engines import Caller, language_model
from moments_app.engines.calls.moments import DraftMoment, KnownMoment, MomentAnswer, MomentRequest, Profile
from moments_app.engines.interface import Engine, EngineError
from moments_app.engines.transcript import Turn
from moments_app.jobs.process import Moved, Skipped, complete, locked_session, prompt_in_force
from moments_app.models import Job, Moment, PromptVersion
from moments_app.models.embedding import ask_to_embed
from moments_app.models.moment import moment_key
from moments_app.moments.journey import Known, keep_journey, known_before
from moments_app.moments.lag import lag, normalised, split
from moments_app.moments.partition import PartitionEvent
from moments_app.prompts import MOMENT_BUILDER_URI
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import blank_platform_text
from moments_app.turns.tool_pairs import pair_safe_boundary
from sessions_app.models import Message, ProfileVersion, Session, UserProfile
from sessions_app.models.user_profile import united

NAME = "build_moments"
# Bounds of one run, in memory and in time; what lies beyond is built by a follow-up job.
MAX_TURNS = 2_000
MAX_CALLS = 10  # about: by tokens
LOOK_AHEAD = 200
AGAIN = "again_to"  # in a job's params: moments up to this sequence were withdrawn, and are built as far again


@dataclass(frozen=True)
class Chunk:
    """What one engine call gets, and the sequence each of its turns has in the session."""

    turns: list[Turn]
    sequences: list[int]


@dataclass(frozen=True)
class Work:
    """The input of a build, as it was at the claim.

    Args:
        session: with its counters at that time.
        known: of the time before the turns.
        first_sequence, last_sequence: of the turns to compact, inclusive.
        chunks: those of them an engine is shown, in window order.
        is_cut: more lies beyond the lag than one run takes.
        is_again: moments of these turns were withdrawn; no later build is due the later for it.
    """

    session: Session
    profile: Profile
    known: Known
    prompt_version: PromptVersion
    first_sequence: int
    last_sequence: int
    chunks: list[Chunk]
    is_cut: bool
    is_again: bool

    def with_prompt(self, version: PromptVersion) -> "Work":
        """The same input with other instructions."""
        return replace(self, prompt_version=version)

    def of_one_call(self) -> "Work":
        """The same cut to what the first call of an engine gets."""
        first, *others = self.chunks
        return replace(self, chunks=[first], last_sequence=first.sequences[-1]) if others else self


@dataclass(frozen=True)
class Segment:
    """A moment to be written, and the turns it holds: inclusive sequences."""

    draft: DraftMoment
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True)
class Built:
    """What the engine made of all chunks."""

    segments: list[Segment]
    profile: Profile
    journey: str
    engine: str


def caller(job: Job) -> Caller:
    """Who writes for this process."""
    return language_model(settings.MOMENT_BUILDER.model)


def is_due(session: Session) -> bool:
    """Whether a build would start by itself: enough turns or tokens since the last one."""
    return settings.MOMENT_BUILDER.enabled and (_due_by_turns(session) or _due_by_tokens(session))


def _due_by_turns(session: Session) -> bool:
    return session.message_count - session.built_message_count >= settings.MOMENT_BUILDER.message_threshold


def _due_by_tokens(session: Session) -> bool:
    return session.total_tokens - session.built_total_tokens >= settings.MOMENT_BUILDER.token_threshold


def prompt() -> PromptVersion:
    """The instructions that builds follow now.

    Raises:
        CannotRun: when the prompt resource that is set doesn't exist.
    """
    return prompt_in_force(settings.MOMENT_BUILDER.prompt_resource_uri or MOMENT_BUILDER_URI)


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads what there is to compact.

    Raises:
        CannotRun: when the prompt resource that is set doesn't exist.
    """
    session = job.session
    assert session is not None  # a build is about a session, always
    if not job.force and not is_due(session):
        return Skipped("not due: neither threshold is reached")
    turns, is_cut = _compactable(session, job.params)
    shown = [turn for turn in turns if turn.role != Message.Role.SYSTEM]
    if not shown:
        if not job.force:
            # Counted from here all the same, or every further append would ask again.
            _count_from(session, session)
        return Skipped("nothing beyond the lag")
    return Work(
        session=session,
        profile=profile_of(session.user),
        known=known_before(session, _first_waiting(session), max(turn.created_at for turn in shown)),
        prompt_version=prompt(),
        first_sequence=_first_waiting(session),
        last_sequence=turns[-1].sequence,
        chunks=chunks_of(shown),
        is_cut=is_cut,
        is_again=AGAIN in job.params,
    )


def _is_settling(params: Mapping[str, int]) -> bool:
    """Whether the session is being settled: what it has is all there will be, and its boundary comes with the rest."""
    return bool(params.get("settling"))


def _compactable(session: Session, params: Mapping[str, int]) -> tuple[list[Message], bool]:
    """The turns no moment holds yet that lie before the lag, and whether one run takes only some of them."""
    live_from = stays_live_from(session, params)
    waiting = session.messages.turns().believed().filter(sequence__gte=_first_waiting(session)).order_by("sequence")
    # Some turns behind the boundary are read too: tool results there may hold it back.
    turns = list(waiting[: MAX_TURNS + LOOK_AHEAD])
    beyond = sum(turn.sequence < live_from for turn in turns)
    fitting = _fitting(turns[:beyond])
    if _is_settling(params) and fitting == len(turns):
        return turns, False  # results that calls at the end still wait for won't come
    boundary = pair_safe_boundary(turns, fitting) or (fitting if fitting < beyond else 0)
    return turns[:boundary], fitting < beyond


def stays_live_from(session: Session, params: Mapping[str, int]) -> int:
    """Sequence of the first turn that a build with these params leaves live: as asked for, or by the settings' lag."""
    if AGAIN in params and "lag" not in params:
        return params[AGAIN] + 1
    conf = settings.MOMENT_BUILDER
    few_but_large = _due_by_tokens(session) and not _due_by_turns(session)
    keep = lag(conf, message_count=session.message_count, few_but_large=few_but_large)
    return max(session.last_sequence - params.get("lag", keep), params.get(AGAIN, -1)) + 1


def _first_waiting(session: Session) -> int:
    """Sequence of the first turn that no moment covers; what was retracted is covered and not shown."""
    return session.built_to + 1


def _fitting(turns: Sequence[Message]) -> int:
    """How many of these turns one run takes, by number and by tokens."""
    left = MAX_CALLS * settings.MOMENT_BUILDER.max_input_tokens
    for count, turn in enumerate(turns[:MAX_TURNS]):
        left -= min(turn.tokens, settings.MOMENT_BUILDER.max_input_tokens)
        if left < 0:
            return count
    return min(len(turns), MAX_TURNS)


def chunks_of(shown: Sequence[Message]) -> list[Chunk]:
    """The turns an engine is shown, without what the platform itself had said, cut into what one call gets."""
    turns = [engine_turn(turn, settings.MOMENT_BUILDER.max_input_tokens) for turn in blank_platform_text(shown)]
    stretches = split(
        [turn.tokens for turn in turns],
        settings.MOMENT_BUILDER.max_input_tokens,
        glued=[turn.role == Message.Role.TOOL for turn in turns],
    )
    return [
        Chunk([replace(turns[n], index=n - part.start) for n in part], [shown[n].sequence for n in part])
        for part in stretches
    ]


def profile_of(user: UserProfile | ProfileVersion) -> Profile:
    """What is known of a person, or was, as an engine is told it."""
    return Profile(user.summary, tuple(user.interests), tuple(user.preferred_topics))


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Built:
    """Calls the engine for each chunk, carrying profile and journey from call to call.

    Raises:
        EngineError: when one of the calls gave no valid answer; nothing is kept of the others.
    """
    segments: list[Segment] = []
    profile, journey = work.profile, work.known.journey
    for number, chunk in enumerate(work.chunks):
        progress(number, len(work.chunks))
        request = MomentRequest(chunk.turns, profile, journey, work.prompt_version.content)
        answer = engine.build_moments(request)
        found = _segments(answer.moments, chunk.sequences)
        segments += found
        profile = merged(profile, answer)
        journey = journey.then(answer.recent_journey.strip(), [_known(segment, chunk) for segment in found])
    return Built(_covering(segments, work), profile, journey.text, engine.name)


def _segments(drafts: Sequence[DraftMoment], sequences: Sequence[int]) -> list[Segment]:
    proposed = [(draft.starts_at_message_idx, draft.ends_at_message_idx) for draft in drafts]
    ranges = normalised(proposed, len(sequences))
    if not ranges:
        raise EngineError("invalid_answer", "The answer has no moment with a range of turns.")
    return [Segment(drafts[n], sequences[start], sequences[end]) for n, (start, end) in ranges.items()]


def _known(segment: Segment, chunk: Chunk) -> KnownMoment:
    """A moment that is about to be, as the next call is told of it."""
    held = range(segment.first_sequence, segment.last_sequence + 1)
    times = [turn.created_at for turn, place in zip(chunk.turns, chunk.sequences, strict=True) if place in held]
    return KnownMoment(segment.draft.name, segment.draft.summary, min(times), max(times))


def _covering(segments: Sequence[Segment], work: Work) -> list[Segment]:
    """The same segments, each reaching to the next: system turns between them ride along with the earlier one."""
    starts = [work.first_sequence] + [segment.first_sequence for segment in segments[1:]] + [work.last_sequence + 1]
    return [
        Segment(segment.draft, first, following - 1)
        for segment, (first, following) in zip(segments, pairwise(starts), strict=True)
    ]


def merged(profile: Profile, answer: MomentAnswer) -> Profile:
    """The profile with what one call learned."""
    return Profile(
        answer.user_summary_update.strip() or profile.summary,
        united(profile.interests, answer.new_interests),
        united(profile.preferred_topics, answer.new_preferred_topics),
    )


# --- commit ---


def commit(job: Job, work: Work, built: Built) -> None:
    """Writes moments, profile, partition event and counters, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: the session's boundary, the profile or an earlier moment changed while the engine was thinking: what was
            told of it then may have been withdrawn.
    """
    session = locked_session(job)
    user = UserProfile.objects.locked().get(pk=session.user_id)
    if session.last_moment_message_idx != work.session.last_moment_message_idx:
        raise Moved("The session's moments changed while the engine was thinking.")
    if profile_of(user) != work.profile:
        raise Moved("The profile changed while the engine was thinking.")
    if not work.known.holds():
        raise Moved("Moments that the engine was told of are gone.")
    moments = store_moments(job, work, built)
    Moment.objects.relink(user.pk, moments)
    user.merge(
        summary=built.profile.summary,
        interests=built.profile.interests,
        preferred_topics=built.profile.preferred_topics,
        actor=f"job:{job.job_id}",
    )
    _move_boundary(job, session, work, built, moments)
    result = {
        "moment_keys": [moment.key for moment in moments],
        "messages_compressed": work.last_sequence - work.first_sequence + 1,
        "first_sequence": work.first_sequence,
        "last_sequence": work.last_sequence,
        "engine": built.engine,
        "engine_calls": len(work.chunks),
    }
    complete(job, "moments_built", result)
    ask_to_embed(f"job:{job.job_id}", user_id=user.pk)
    _follow_up(job, session, work)


def store_moments(job: Job, work: Work, built: Built) -> list[Moment]:
    """Writes the moments of a build, and says of each turn which one holds it; the caller links them into the chain."""
    moments = []
    for segment in built.segments:
        moment = _moment(segment, work.session)
        moment.job, moment.engine, moment.prompt_version = job, built.engine, work.prompt_version
        moment.save()
        _held(work.session, segment).update(moment=moment)
        moments.append(moment)
    keep_journey(moments, built.journey)
    return moments


def _moment(segment: Segment, session: Session) -> Moment:
    draft = segment.draft
    times = sorted(_held(session, segment).values_list("created_at", flat=True))
    name = draft.name.strip()
    taken = Moment.objects.filter(user_id=session.user_id, key__contains=f"{times[0]:%Y%m%d}")
    return Moment(
        user_id=session.user_id,
        source_session=session,
        key=moment_key(name, times[0], set(taken.values_list("key", flat=True))),
        name=name,
        summary=draft.summary,
        detail=draft.detail,
        topic_tags=united([], draft.topic_tags),
        emotion_tags=united([], draft.emotion_tags),
        present_persons=united([], draft.present_persons),
        starts_at=times[0],
        ends_at=times[-1],
        first_sequence=segment.first_sequence,
        last_sequence=segment.last_sequence,
    )


def _held(session: Session, segment: Segment) -> QuerySet[Message]:
    return session.messages.turns().believed().filter(sequence__range=(segment.first_sequence, segment.last_sequence))


def _move_boundary(job: Job, session: Session, work: Work, built: Built, moments: Sequence[Moment]) -> None:
    session.last_moment_message_idx = work.last_sequence
    session.save(update_fields=["last_moment_message_idx"])
    if settings.MOMENT_BUILDER.insert_partition_event and not _is_settling(job.params):
        PartitionEvent.of_build(moments, journey=built.journey, session=session).leave(work.last_sequence)
        session.begin_live_window(work.last_sequence + 1)
    if not work.is_again:
        _count_from(session, work.session)


def _count_from(session: Session, then: Session) -> None:
    """From now on thresholds count what came after `then`, the session as it was at the claim."""
    session.built_message_count, session.built_total_tokens = then.message_count, then.total_tokens
    session.save(update_fields=["built_message_count", "built_total_tokens"])


def _follow_up(job: Job, session: Session, work: Work) -> None:
    """Asks for the next build when this one took only a part, or when enough came in meanwhile."""
    if work.is_cut:
        Job.objects.request(NAME, session, requested_by=job.requested_by, force=True, params=job.params)
    elif is_due(session):
        Job.objects.request(NAME, session, requested_by=f"job:{job.job_id}")


# --- when it came to nothing ---


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: a build writes nothing before its commit."""
