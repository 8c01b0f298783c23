"""Prepare turns for the engine, which divides them into moments, and store the moments.

Builds, rebuilds and settlings use this module. Turns with a draft of a formation are not sent to an engine again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import reduce
from itertools import groupby, pairwise
from operator import or_
from typing import Any, Self

from django.conf import settings
from django.db import connection
from django.db.models import Q

from moments_app.engines.calls.moments import DraftMoment, Journey, KnownMoment, MomentRequest
from moments_app.engines.interface import Engine, EngineError
from moments_app.engines.transcript import Turn
from moments_app.jobs.process import (
    CorrectionState,
    InputChanged,
    ProcessInput,
    Progress,
    active_prompt,
    check_corrections,
)
from moments_app.models import EpisodeDraft, Job, Moment, PromptVersion
from moments_app.models.moment import EPISODE_FIELDS, moment_key
from moments_app.moments.journey import KnownHistory, are_current, extended, journey_text
from moments_app.prompts import MOMENT_BUILDER_URI
from moments_app.turns.engine_input import engine_turn, split
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.user_profile import merge_lists

MAX_TURNS = 2_000  # maximum turns of one run; a follow-up job builds the rest
BUILT = "moments_built"  # type of event
_IN_SEGMENT = """
turn.session_id = segment.session_id AND turn.sequence BETWEEN segment.first AND segment.last
AND turn.user_id = %(user)s AND turn.kind = 'turn' AND turn.retracted_at IS NULL
"""
TIMES_SQL = f"""
SELECT min(turn.created_at), max(turn.created_at)
FROM unnest(%(sessions)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    WITH ORDINALITY AS segment (session_id, first, last, number)
JOIN sessions_app_message turn ON {_IN_SEGMENT} GROUP BY segment.number ORDER BY segment.number
"""  # noqa: S608 (constants)
LINK_SQL = f"""
UPDATE sessions_app_message turn SET moment_id = segment.moment_id
FROM unnest(%(moments)s::bigint[], %(sessions)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS segment (moment_id, session_id, first, last)
WHERE {_IN_SEGMENT}
"""  # noqa: S608 (constants)


@dataclass(frozen=True)
class Chunk:
    """The turns of one call or of one draft, and their sequence numbers."""

    turns: list[Turn]
    sequences: list[int]
    draft: EpisodeDraft | None = None


@dataclass(frozen=True)
class BuildInput(ProcessInput):
    """The input of a build, at the time of the claim.

    Args:
        known: the moments before the turns.
        chunks: the turns for the engine, in order. Some have a draft and need no call.
        corrections: the state of the person's corrections at the start of the claim.
        is_cut: whether more turns are due than one run accepts.
        is_rebuild: whether moments of these turns were withdrawn or are replaced. Such a build does not reset the
            counters.
    """

    prompt_version: PromptVersion
    session: Session
    known: KnownHistory
    first_sequence: int
    last_sequence: int
    chunks: list[Chunk]
    corrections: CorrectionState
    is_cut: bool = False
    is_rebuild: bool = False

    def with_prompt(self, version: PromptVersion) -> Self:
        """Return the same input with another prompt and without drafts, so that the engine writes all moments again."""
        return replace(self, prompt_version=version, chunks=[replace(chunk, draft=None) for chunk in self.chunks])

    @property
    def undrafted(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.draft is None]

    def for_first_call(self) -> "BuildInput":
        first, *others = self.chunks
        return replace(self, chunks=[first], last_sequence=first.sequences[-1]) if others else self


@dataclass(frozen=True)
class Segment:
    """A moment to store."""

    draft: DraftMoment
    first_sequence: int
    last_sequence: int
    written: EpisodeDraft | None = None  # the draft that the moment publishes


@dataclass(frozen=True)
class BuildResult:
    """The moments from all answers, and the journey that includes them."""

    segments: list[Segment]
    journey: str
    engine: str


def builder_prompt(session: Session) -> PromptVersion:
    """Return the active prompt for builds of a session. Raise `CannotRun` if there is none."""
    return active_prompt(settings.MOMENT_BUILDER.prompt_resource_uri or MOMENT_BUILDER_URI, session)


def chunks_with_drafts(
    shown: Sequence[Message], read: Sequence[Message], drafts: Sequence[EpisodeDraft], zone: tzinfo
) -> list[Chunk]:
    """Group turns by draft. Split turns without a draft as in `split_chunks`."""

    def draft_of(both: tuple[Message, Message]) -> EpisodeDraft | None:
        sequence = both[0].sequence
        return next((one for one in drafts if one.first_sequence <= sequence <= one.last_sequence), None)

    chunks: list[Chunk] = []
    for draft, group in groupby(zip(shown, read, strict=True), key=draft_of):
        own, own_read = zip(*group, strict=True)
        parts = split_chunks(own, own_read, zone)
        if draft:
            turns = [turn for part in parts for turn in part.turns]
            parts = [Chunk(turns, [message.sequence for message in own], draft)]
        chunks += parts
    return chunks


def split_chunks(shown: Sequence[Message], read: Sequence[Message], zone: tzinfo) -> list[Chunk]:
    """Split turns into the input of each call. `read` has the same turns without platform text."""
    turns = [engine_turn(turn, settings.MOMENT_BUILDER.max_input_tokens, zone) for turn in read]
    parts = split(
        [turn.tokens for turn in turns],
        settings.MOMENT_BUILDER.max_input_tokens,
        glued=[turn.role == Message.Role.TOOL for turn in turns],
    )
    return [
        Chunk([replace(turns[n], index=n - part.start) for n in part], [shown[n].sequence for n in part])
        for part in parts
    ]


# --- think ---


def divide(input: BuildInput, engine: Engine, progress: Progress) -> BuildResult:
    """Call the engine for each chunk without a draft. Each call receives the journey up to its turns.

    Raises:
        EngineError: a call failed. The answers of all calls are discarded.
    """
    segments: list[Segment] = []
    journey = input.known.journey
    for number, chunk in enumerate(input.chunks):
        progress(number, len(input.chunks))
        if chunk.draft:
            found = [_of_draft(chunk.draft, chunk)]
        else:
            answer = engine.build_moments(request_of(input, chunk, journey))
            found = _segments(answer.moments, chunk.sequences)
        segments += found
        journey = extended(journey, [_known_moment(segment, chunk) for segment in found])
    return BuildResult(_extend(segments, input), journey_text(journey), engine.name)


def only_request(input: BuildInput) -> tuple[MomentRequest, Chunk] | None:
    """Return the engine's request and its chunk, if exactly one call is needed."""
    if len(input.undrafted) != 1:
        return None
    journey = input.known.journey
    for chunk in input.chunks:
        if chunk.draft is None:
            return request_of(input, chunk, journey), chunk
        journey = extended(journey, [_known_moment(_of_draft(chunk.draft, chunk), chunk)])
    return None


def _of_draft(draft: EpisodeDraft, chunk: Chunk) -> Segment:
    written = {name: getattr(draft, name) for name in EPISODE_FIELDS}
    answer = DraftMoment(**written, starts_at_message_idx=0, ends_at_message_idx=len(chunk.turns) - 1)
    return Segment(answer, chunk.sequences[0], chunk.sequences[-1], draft)


def request_of(input: BuildInput, chunk: Chunk, journey: Journey) -> MomentRequest:
    return MomentRequest(chunk.turns, journey, input.prompt_version.content)


def _segments(drafts: Sequence[DraftMoment], sequences: Sequence[int]) -> list[Segment]:
    proposed = [(draft.starts_at_message_idx, draft.ends_at_message_idx) for draft in drafts]
    ranges = cover_window(proposed, len(sequences))
    if not ranges:
        raise EngineError("invalid_answer", "The answer has no moment with a range of turns.")
    return [Segment(drafts[n], sequences[start], sequences[end]) for n, (start, end) in ranges.items()]


def _known_moment(segment: Segment, chunk: Chunk) -> KnownMoment:
    held = range(segment.first_sequence, segment.last_sequence + 1)
    times = [turn.created_at for turn, place in zip(chunk.turns, chunk.sequences, strict=True) if place in held]
    return KnownMoment(segment.draft.name, segment.draft.summary, min(times), max(times))


def _extend(segments: Sequence[Segment], input: BuildInput) -> list[Segment]:
    """Extend each segment up to the next one, so that the system turns in between belong to a segment."""
    starts = [input.first_sequence] + [segment.first_sequence for segment in segments[1:]] + [input.last_sequence + 1]
    return [
        replace(segment, first_sequence=first, last_sequence=following - 1)
        for segment, (first, following) in zip(segments, pairwise(starts), strict=True)
    ]


# --- commit ---


def lock_if_unchanged(user_id: int, corrections: CorrectionState, *, builds: Sequence[BuildInput]) -> UserProfile:
    """Lock and return a person. Raise `InputChanged` if moments, drafts or facts that the engine received changed."""
    user = UserProfile.objects.locked().get(pk=user_id)  # every change of the chain locks the person
    if not are_current({pk: headline for one in builds for pk, headline in one.known.headlines.items()}):
        raise InputChanged("Moments that the engine received were changed or deleted.")
    drafts = [chunk.draft.pk for one in builds for chunk in one.chunks if chunk.draft]
    if EpisodeDraft.objects.filter(pk__in=drafts).count() != len(drafts):
        raise InputChanged("Drafts of moments were deleted.")
    check_corrections(user_id, corrections)
    return user


@dataclass(frozen=True)
class FinishedBuild:
    job: Job
    input: BuildInput
    built: BuildResult


def store_moments(job: Job, input: BuildInput, built: BuildResult) -> list[Moment]:
    """Store the moments of a build, and link its turns to them. The caller must link the moments into the chain."""
    [moments] = store_builds([FinishedBuild(job, input, built)])
    return moments


def store_builds(builds: Sequence[FinishedBuild]) -> list[list[Moment]]:
    """Store the moments of several builds of one person, with a constant number of statements."""
    segments = [(one.input.session, segment) for one in builds for segment in one.built.segments]
    times = _times(segments)
    used_keys = _used_keys(segments[0][0].user_id, [start for start, _ in times])
    remaining_times = iter(times)
    stored = [_moments(build, remaining_times, used_keys) for build in builds]
    _link_turns(Moment.objects.bulk_create([moment for moments in stored for moment in moments]))
    return stored


def _moments(build: FinishedBuild, times: Iterator[tuple[datetime, datetime]], used_keys: set[str]) -> list[Moment]:
    """Return the unsaved moments of a build, and add their keys to `used_keys`. The latest one contains the journey."""
    moments: list[Moment] = []
    for segment, said in zip(build.built.segments, times, strict=False):  # leaves the other times for the next builds
        moments.append(_moment(build, segment, said, used_keys))
        used_keys.add(moments[-1].key)
    max(moments, key=lambda moment: (moment.ends_at, moment.first_sequence)).journey = build.built.journey
    return moments


def _moment(build: FinishedBuild, segment: Segment, said: tuple[datetime, datetime], used_keys: set[str]) -> Moment:
    session, written = build.input.session, segment.written
    columns = _columns(segment.draft)
    return Moment(
        **columns,
        user_id=session.user_id,
        source_session=session,
        key=moment_key(columns["name"], said[0], used_keys),
        starts_at=said[0],
        ends_at=said[1],
        first_sequence=segment.first_sequence,
        last_sequence=segment.last_sequence,
        job_id=written.job_id if written else build.job.pk,
        engine=written.engine if written else build.built.engine,
        prompt_version_id=written.prompt_version_id if written else build.input.prompt_version.pk,
    )


def _columns(draft: DraftMoment) -> dict[str, Any]:
    written = {name: getattr(draft, name) for name in EPISODE_FIELDS}
    tags = {name: merge_lists([], value) for name, value in written.items() if isinstance(value, list)}
    return written | tags | {"name": draft.name.strip()}


def drafts_of(job: Job, input: BuildInput, built: BuildResult) -> list[EpisodeDraft]:
    """Return unsaved drafts of the moments. A later build publishes them."""
    return [
        EpisodeDraft(
            **_columns(segment.draft),
            user_id=input.session.user_id,
            session=input.session,
            first_sequence=segment.first_sequence,
            last_sequence=segment.last_sequence,
            job=job,
            prompt_version=input.prompt_version,
            engine=built.engine,
        )
        for segment in built.segments
    ]


def _used_keys(user: int, starts: Sequence[datetime]) -> set[str]:
    on_days = [Q(key__contains=day) for day in sorted({f"{start:%Y%m%d}" for start in starts})]
    return set(Moment.objects.filter(reduce(or_, on_days), user_id=user).values_list("key", flat=True))


def _times(segments: Sequence[tuple[Session, Segment]]) -> list[tuple[datetime, datetime]]:
    """Return the times of each segment's first and last turn. All sessions belong to one person."""
    rows = [(session.pk, segment.first_sequence, segment.last_sequence) for session, segment in segments]
    sessions, firsts, lasts = (list(column) for column in zip(*rows, strict=True))
    values: dict[str, Any] = {"user": segments[0][0].user_id, "sessions": sessions, "firsts": firsts, "lasts": lasts}
    with connection.cursor() as cursor:
        cursor.execute(TIMES_SQL, values)
        times: list[tuple[datetime, datetime]] = cursor.fetchall()
    return times


def _link_turns(moments: Sequence[Moment]) -> None:
    rows = [(one.pk, one.source_session_id, one.first_sequence, one.last_sequence) for one in moments]
    pks, sessions, firsts, lasts = (list(column) for column in zip(*rows, strict=True))
    values: dict[str, Any] = {"user": moments[0].user_id, "moments": pks}
    with connection.cursor() as cursor:
        cursor.execute(LINK_SQL, values | {"sessions": sessions, "firsts": firsts, "lasts": lasts})


def result_of(input: BuildInput, built: BuildResult, moments: Sequence[Moment]) -> dict[str, Any]:
    return {
        "moment_keys": [moment.key for moment in moments],
        "messages_compressed": input.last_sequence - input.first_sequence + 1,
        "first_sequence": input.first_sequence,
        "last_sequence": input.last_sequence,
        "engine": built.engine,
        "engine_calls": len(input.undrafted),
    }


# --- arithmetic, without a database ---


def cover_window(ranges: Sequence[tuple[int, int]], length: int) -> dict[int, tuple[int, int]]:
    """Make the proposed ranges cover a window without gaps or overlaps.

    Clip ranges to the window, and sort them. If ranges overlap, the earlier one keeps its part. A gap goes to the range
    before it, or at the start to the first range. Empty ranges are dropped.

    Args:
        ranges: inclusive (start, end) indexes proposed by an engine, in any order.
        length: the number of turns in the window, at least 1.

    Returns:
        The new inclusive (start, end) indexes in window order, keyed by position in `ranges`.
    """
    last = length - 1
    clipped = sorted((min(max(start, 0), last), min(max(end, 0), last), n) for n, (start, end) in enumerate(ranges))
    starts: list[tuple[int, int]] = []  # (first index, position in `ranges`)
    covered = -1
    for start, end, n in clipped:
        start = max(start, covered + 1)
        if start <= end:
            starts.append((start if starts else 0, n))
            covered = end
    if not starts:
        return {}
    ends = [*(start - 1 for start, _ in starts[1:]), last]
    return {n: (start, end) for (start, n), end in zip(starts, ends, strict=True)}
