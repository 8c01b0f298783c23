"""The input of a context (the session, its newest live turns, and a stamp of memory), and the items made from it.

The input is read with one query. If any fact about the person is no longer true, a second query is needed.

The *stamp* changes with the profile, the summary, the boundary, the latest moments and the active policy. Cached parts
of a context with another stamp are rebuilt.

The items made from live turns are cached, because a session's next context has mostly the same turns. The turns are
still read from the database each time, and a cached item is used only if its turn is identical.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from itertools import starmap
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef
from django.utils.functional import cached_property

from moments_app.engines.words import undated_words, words_of
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import BY_DATE, ENTITIES, WRITTEN_ATTRIBUTES
from moments_app.models.entity import OPEN_SQL
from moments_app.models.moment import LATEST_MOMENTS
from moments_app.models.stream import LESSONS
from moments_app.recall.request import RecallRequest
from moments_app.turns.corrected import End, ends_of
from sessions_app.database.sql import EPOCH, columns, on_one_line, read_first, time_of
from sessions_app.models import Message, Session, UserProfile
from sessions_app.process_cache import ProcessCache
from sessions_app.text.invisible_characters import has_invisible, without_invisible

POLICY_URI = "rem://prompts/memory-policy"
MAX_TURNS = 400  # maximum turns to read from a live window
NEVER = 2**62  # greater than every sequence number
MAX_OBSERVATIONS = 50  # maximum observations of a stream in a context; older ones are found by search
MAX_CANDIDATES = 25  # maximum number of the person's own statements that a context includes from a shard
# Uses unique keys and the indexes for the loader, the chain of summaries and the newest moments. It reads only a few
# rows from each, so its cost doesn't depend on the size of memory. The turns are returned as one value, with only the
# fields that a context needs.
_OPENING_SQL = """
WITH opened AS MATERIALIZED (
    SELECT s.*, jsonb_build_array(
        (SELECT id FROM moments_app_summary WHERE session_id = s.id AND user_id = s.user_id AND status = 'completed'
         ORDER BY end_sequence DESC, id DESC LIMIT 1),
        (SELECT active_version_id FROM moments_app_promptresource
         WHERE uri = %(policy)s AND (application_id = %(application)s OR application_id IS NULL)
           AND active_version_id IS NOT NULL
         ORDER BY application_id NULLS LAST LIMIT 1),
        (SELECT jsonb_agg(latest) FROM (
            SELECT id, updated_at FROM moments_app_moment WHERE user_id = s.user_id
            ORDER BY ends_at DESC, first_sequence DESC, id DESC LIMIT %(moments)s
        ) latest),
        (SELECT jsonb_agg(stream ORDER BY stream.id) FROM (
            SELECT id, last_updated_at FROM moments_app_memorystream WHERE stream_type = 'session' AND session_id = s.id
            UNION ALL SELECT id, last_updated_at FROM moments_app_memorystream
            WHERE stream_type = 'user' AND agent_id = s.agent_id AND user_id = s.user_id
            UNION ALL SELECT id, last_updated_at FROM moments_app_memorystream
            WHERE stream_type = 'agent' AND application_id = %(application)s AND agent_id IN ('', s.agent_id)
              AND is_active
        ) stream),
        (SELECT max(id) FROM moments_app_memoryatom WHERE user_id = s.user_id AND is_candidate)
    )::text AS stamp
    FROM sessions_app_session s WHERE s.user_id = %(user)s AND s.session_id = %(session_id)s
)
SELECT {columns}, concat(stamp, ' ', (
    SELECT id FROM sessions_app_message WHERE {in_session} AND kind = 'partition'
    ORDER BY sequence DESC, id DESC LIMIT 1
)) AS stamp, (
    SELECT json_agg(json_build_array(id, sequence, role, content, name, tool_name, payload,
        (extract(epoch FROM created_at) * 1000000)::bigint) ORDER BY sequence)::text
    FROM (
        SELECT id, sequence, role, content, name, tool_name, payload, created_at, row_number() OVER newer AS place,
            sum(%(extra_tokens)s + CASE WHEN payload IS NULL THEN tokens ELSE 0 END) OVER newer AS together
        FROM sessions_app_message
        WHERE {in_session} AND kind = 'turn' AND retracted_at IS NULL
          AND sequence >= (SELECT live_from_sequence FROM opened) AND sequence < %(before)s
        WINDOW newer AS (ORDER BY sequence DESC ROWS UNBOUNDED PRECEDING)
        ORDER BY sequence DESC LIMIT %(most)s
    ) newest WHERE together <= %(applied)s OR place <= %(hot)s
) AS turns, (
    SELECT json_object_agg(sequence, marks)::text FROM (
        SELECT mark.sequence, json_agg(json_build_array(mark.wrong, mark.right) ORDER BY mark.id) AS marks
        FROM moments_app_correctedturn mark
        WHERE {in_session} AND mark.sequence >= (SELECT live_from_sequence FROM opened)
        GROUP BY mark.sequence
    ) corrected
) AS marks, EXISTS (
    SELECT 1 FROM moments_app_memoryatom WHERE user_id = opened.user_id AND {open_entities}
) AS has_entities, EXISTS (
    SELECT 1 FROM moments_app_memoryatom WHERE user_id = opened.user_id AND ended_at IS NOT NULL
      AND ended_by <> '{by_date}' AND source_message_ids <> '{{}}'
) AS has_ended FROM opened
"""
# Filters by the person's primary key, because it determines the node that stores the turns of a distributed table.
_IN_SESSION = "user_id = %(user)s AND session_id = (SELECT id FROM opened)"


class LiveTurn(NamedTuple):
    """A turn of the live window. The fields are those of `Message`, with the time in microseconds since 1970."""

    pk: int
    sequence: int
    role: str
    content: str
    name: str
    tool_name: str
    payload: Any
    microseconds: int
    # later corrections: pairs of the wrong words and their replacement
    marks: Sequence[tuple[str, str]] = ()
    ends: Sequence[End] = ()  # facts in the turn that are no longer true

    @classmethod
    def of(cls, message: Message) -> Self:
        microseconds = (message.created_at - EPOCH) // timedelta(microseconds=1)
        return cls._make([*(getattr(message, name) for name in cls._fields[:-3]), microseconds, (), ()])

    @property
    def created_at(self) -> datetime:
        return time_of(self.microseconds)


def with_ends(user: UserProfile, turns: Sequence[LiveTurn], as_of: datetime | None = None) -> list[LiveTurn]:
    """Add to each turn its facts that are no longer true, or that were known to be no longer true at `as_of`."""
    ends = ends_of(user, [turn.pk for turn in turns], as_of)
    return [turn._replace(ends=ends.get(turn.pk, ())) for turn in turns]


@dataclass(frozen=True)
class ContextInput:
    user: UserProfile
    session: Session
    query: str  # the current message
    applied: int  # the token budget of the context
    turns: list[LiveTurn]  # the newest turns of the live window, oldest first
    is_whole: bool  # whether `turns` is the whole live window
    stamp: str
    recall: RecallRequest | None = None  # None if there is no search
    before: int = NEVER  # sequence number of the first excluded turn
    has_entities: bool = True  # whether the person has an open task, goal or problem
    results: frozenset[str] = frozenset()  # ids of the tool calls whose results the caller sends to the model

    @cached_property
    def streams(self) -> "list[tuple[MemoryStream, list[MemoryAtom]]]":
        """The active streams that the session contributes to, lessons first, each with its standing text.

        The standing text of a stream consists of its newest facts, up to the stream's own maximum, its pinned atoms,
        and its newest unmerged observations, oldest first. For a shard, it also contains this person's newest
        candidates.
        """
        there = MemoryAtom.objects.active().filter(stream=OuterRef("pk"))
        atoms, candidates = there.filter(is_candidate=False), there.candidates().filter(user=self.user.pk)
        streams = MemoryStream.objects.visible_to(self.session).active().order_by("-last_updated_at", "-id")
        newest = atoms.observations().newest_first().values("pk")[:MAX_OBSERVATIONS]
        pinned = atoms.filter(is_pinned=True).exclude(attribute__in=WRITTEN_ATTRIBUTES).values("pk")
        own = candidates.newest_first().values("pk")[:MAX_CANDIDATES]
        named = {"newest": newest, "pinned": pinned, "own": own}
        found = list(streams.annotate(**{name: ArraySubquery(atoms) for name, atoms in named.items()}))
        found.sort(key=lambda stream: stream.name != LESSONS)
        kept = _atoms_of(found)
        return [(stream, kept[stream.pk]) for stream in found]


def _atoms_of(streams: Sequence[Any]) -> dict[int, list[MemoryAtom]]:
    """Return the newest facts of each stream, and the atoms whose ids were annotated. Runs one query."""
    kept: dict[int, list[MemoryAtom]] = {stream.pk: [] for stream in streams}
    named = [pk for stream in streams for pk in (*stream.newest, *stream.pinned, *stream.own)]
    atoms = MemoryAtom.objects.active()
    found = atoms.filter(pk__in=named).union(*(atoms.in_contexts(stream) for stream in streams), all=True)
    for atom in sorted(found, key=lambda atom: (atom.formed_at, atom.pk)):
        kept[atom.stream_id].append(atom)
    return kept


def read_input(
    user: UserProfile,
    session_id: str,
    query: str,
    applied: int,
    recall: RecallRequest | None,
    *,
    before: int | None = None,
    extra_tokens: int = 0,
) -> ContextInput | None:
    """Return the input of a context, or None if the user has no such session.

    If the live window exceeds the budget, only as many turns are read as could fit into the budget.

    Args:
        before: the sequence number of the first excluded turn; None: include all turns.
        extra_tokens: the minimum number of tokens that rendering adds to the text of a turn.
    """
    hot, end = settings.MEMORY_CONTEXT.hot_turns_limit, NEVER if before is None else before
    most = max(hot, min(applied // max(extra_tokens, 1), MAX_TURNS))
    parameters: dict[str, int | str] = {
        "user": user.pk,
        "application": user.application_id,
        "policy": POLICY_URI,
        "session_id": session_id,
        "moments": LATEST_MOMENTS,
        "applied": applied,
        "extra_tokens": extra_tokens,
        "most": most,
        "before": end,
        "hot": hot,
    }
    found = read_first(Session, _opening_sql(), parameters, prepared=True)
    if found is None:
        return None
    session, (memory, said, corrected, has_entities, has_ended) = found
    session.user = user
    turns = list(starmap(LiveTurn, json.loads(said or "[]")))
    if corrected:
        marks = json.loads(corrected)
        turns = [turn._replace(marks=marks.get(str(turn.sequence), ())) for turn in turns]
    if has_ended:
        turns = with_ends(user, turns)
    stamp = f"{user.updated_at.isoformat()} {memory}"
    # If another turn would have fit, the query would have returned it. So these are all turns of the window.
    is_whole = session.live_tokens + extra_tokens * (len(turns) + 1) <= applied and len(turns) < most
    return ContextInput(
        user, session, query, applied, turns, is_whole, stamp, recall, before=end, has_entities=has_entities
    )


@cache
def _opening_sql() -> str:
    named = {"columns": columns(Session, "opened"), "in_session": _IN_SESSION}
    return on_one_line(_OPENING_SQL.format(**named, by_date=BY_DATE, open_entities=OPEN_SQL))


# --- items: lines made from memory ---

_KIND = re.compile(r"^\[\w+\] ")


@dataclass
class Item:
    """A line of memory.

    Items are never changed. The class isn't frozen because that would make construction three times slower.
    """

    text: str  # without invisible characters; each output format escapes the text
    ref: str = ""  # a `rem://` address; blank if the item is not memory, such as the query
    # sequence numbers of the first and the last source turn, in their session
    source_sequences: tuple[int, int] | None = None
    time: datetime | None = None  # time of the message or statement, with a time zone
    zone: tzinfo = UTC  # the person's time zone, if the time is shown
    name: str = ""  # name of the shard
    role: str = ""
    speaker: str = ""  # speaker of a turn, if the application names speakers
    tool: str = ""
    calls: tuple[dict[str, object], ...] = ()  # tool calls of an assistant turn, in OpenAI's format
    call_id: str = ""  # id of the call whose result the turn contains
    joined: bool = False  # whether it belongs to the previous item, and is left out together with it
    why: str = ""  # reason for including it, for operators; blank if the layer explains it
    score: float = 1.0  # score of a search result; 0 for an older live turn
    is_certain: bool = False  # whether it is always included if it fits into the budget
    is_neighbor: bool = False  # whether it is included only because an adjacent turn was found
    is_in_span: bool = False  # whether it is from the time mentioned in the query
    marks: str = ""  # the last part of the text, with corrections and facts that are no longer true
    also: tuple[str, ...] = ()  # addresses of the facts in `marks`
    # cache of the rendered item and its tokens, by format and layer
    written: dict[tuple[type, str], tuple[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # cache of beginnings of the item with their tokens, by format, layer and length
    cuts: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shown = f"{self.text} {self.name} {self.tool} {self.speaker}"
        if shown.isascii() or not has_invisible(shown):
            return
        for name in ("text", "name", "tool", "speaker", "marks"):
            setattr(self, name, without_invisible(getattr(self, name)))

    def marked(self, *, why: str, score: float, is_certain: bool) -> Self:
        """Return a copy with another reason, score and certainty. The copy shares the data computed from the text."""
        item = object.__new__(type(self))
        item.__dict__.update(self.__dict__, why=why, score=score, is_certain=is_certain)
        return item

    @property
    def refs(self) -> list[str]:
        """The addresses of the item and of the facts in its marks."""
        return [self.ref, *self.also] if self.ref else []

    @cached_property
    def local_time(self) -> datetime | None:
        return self.time and self.time.astimezone(self.zone)

    @cached_property
    def local_day(self) -> date | None:
        return self.local_time and self.local_time.date()

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.text)

    @cached_property
    def word_set(self) -> frozenset[str]:
        return frozenset(self.words)

    @cached_property
    def unmarked_words(self) -> str:
        """The words of the text without its marks, separated by spaces."""
        return " ".join(words_of(self.text.removesuffix(self.marks)) if self.marks else self.words)

    @cached_property
    def statement_words(self) -> str:
        """The words of the text separated by spaces, without its day, and without the kind of a task or goal."""
        return undated_words(_KIND.sub("", self.text) if self.ref.startswith(ENTITIES) else self.text)


# --- caches of parts of contexts in a web process, with their rendered text and token counts ---

MAX_CHARS = 5_000_000  # maximum characters of text in each cache; a text is also stored in each rendered format
CACHE_SECONDS = 300.0
ITEM_CHARS = 500  # characters counted for each item in addition to its text
TURN_CHARS = 500  # characters counted for each turn in addition to its text
Layers = Mapping[str, Sequence[Item]]  # by name of the layer
Known = dict[int, tuple[LiveTurn, Item]]  # the turns of one session and their items, by sequence number


class _CachedLayers(NamedTuple):
    stamp: str
    layers: Layers

    @property
    def chars(self) -> int:
        return sum([ITEM_CHARS + len(item.text) for layer in self.layers.values() for item in layer])


class LayerCache:
    """A cache of layers, keyed by the session's primary key, which is never reused."""

    def __init__(self) -> None:
        self._sessions: ProcessCache[int, _CachedLayers] = ProcessCache(
            MAX_CHARS, seconds=CACHE_SECONDS, size_of=lambda kept: kept.chars
        )

    def get(self, session: int, stamp: str) -> Layers | None:
        """Return the cached layers of a session, or None if they have another stamp."""
        kept = self._sessions.get(session)
        return kept.layers if kept and kept.stamp == stamp else None

    def put(self, session: int, stamp: str, layers: Layers) -> None:
        self._sessions.put(session, _CachedLayers(stamp, layers))

    def drop(self, sessions: Iterable[int]) -> None:
        for session in sessions:
            self._sessions.drop(session)


LAYER_CACHE = LayerCache()


class TurnCache:
    """A cache of items, keyed by session and time zone."""

    def __init__(self) -> None:
        self._sessions: ProcessCache[tuple[int, str], Known] = ProcessCache(
            MAX_CHARS, seconds=CACHE_SECONDS, size_of=_chars
        )

    def items(
        self, session: int, zone: ZoneInfo, turns: Sequence[LiveTurn], make: Callable[[LiveTurn], Item]
    ) -> list[Item]:
        """Return the items of a session's turns, and cache them. `make` creates a missing item."""
        address = (session, zone.key)
        known = self._sessions.get(address) or {}
        found: list[tuple[LiveTurn, Item]] = []
        is_known = len(turns) >= len(known)
        for turn in turns:
            there = known.get(turn.sequence)
            if there is None or there[0] != turn:
                there, is_known = (turn, make(turn)), False
            found.append(there)
        if not is_known:
            kept = {turn.sequence: (turn, item) for turn, item in found if turn.payload is None}
            self._sessions.put(address, kept)
        return [item for _turn, item in found]

    def __len__(self) -> int:
        return len(self._sessions)


def _chars(items: Known) -> int:
    return TURN_CHARS * len(items) + sum([len(item.text) for _turn, item in items.values()])


TURN_CACHE = TurnCache()
