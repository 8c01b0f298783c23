"""Platform text: text in a conversation that this platform wrote itself. Memory must not be derived from it.

When a turn arrives, its lines are compared with the lines served to the person before, and those that are platform text
are recorded. So a text that the person wrote before it was ever served is not platform text. A person's own words about
a context are not platform text either.

A hash depends only on the words of a line, so the same memory has the same hashes in XML, Markdown and JSON. A served
line in a message is not always platform text, because memory quotes people, and people repeat themselves. It is
platform text if it has a form that only the platform writes: it has the date or the XML element of a served line, is
under a served heading, or is next to other platform text.
"""

import copy
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.dispatch import receiver
from django.utils import timezone
from django.utils.functional import cached_property

from moments_app.engines.words import plain_words
from moments_app.models import OwnText
from moments_app.models.context_receipt import REFRESH_INTERVAL
from moments_app.turns.engine_input import as_corrected
from sessions_app.database.deferred import WriteBuffer
from sessions_app.database.sql import array_of
from sessions_app.models import Message, Session, UserProfile
from sessions_app.process_cache import ProcessCache, cached_by_hash
from sessions_app.transcript.append import NewMessage, messages_received

# The tools whose results are memory.
MEMORY_TOOLS = ("session_partition", "search_long_term_memory", "get_context", "append_memory")
MIN_BYTES = 20  # shorter lines may be equal by coincidence
MAX_HASHES = 50_000  # maximum lines whose hashes are cached
MAX_NESTING = 3  # levels of nested JSON to read, because the result of a tool may quote another result

_TAG = re.compile(r"^\s*</?[A-Z][A-Za-z]*\b[^<>]*>|</[A-Z][A-Za-z]*>\s*$")  # our tag, at the start or end of a line
# Matches a line of memory in an element or with its date. People who repeat something don't use this form.
_MARK = re.compile(
    r"^\s*<(?:Turn|MemoryShard)\b[^<>]*>"
    r"|[(\[]\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?[)\]]"
    r"|^\W*\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?\b"
)
_NAME = re.compile(r"^\W*(?:(?:user|assistant|tool|system)\b[^:\n]{0,80}|\*\*[^*\n]{1,100}\*\*\s*):")
_NUMBER = re.compile(r"^\s*\d+[.)]\s")
_ADDRESS = re.compile(r"rem://\S+")
_IDENTIFIER = re.compile(r"[!-~]*")  # ASCII without a space: a name, a time or a number, but no words
TRUSTED_SECONDS = 600  # for this time, a process assumes that the lines it wrote still exist
MAX_PEOPLE, MAX_LINES = 300, 1_000  # maximum people whose lines a process caches, and lines per person

# Leaves recent rows unchanged, and writes the others in a fixed order, to prevent deadlocks.
_WRITE_SQL = """
INSERT INTO moments_app_servedline (user_id, hash, is_quote, served_on)
SELECT * FROM unnest(%(users)s::bigint[], %(hashes)s::bigint[], %(quotes)s::boolean[]) AS line (user_id, hash, is_quote)
CROSS JOIN CAST(%(today)s AS date) AS today
WHERE NOT EXISTS (
    SELECT FROM moments_app_servedline there WHERE there.user_id = line.user_id AND there.hash = line.hash
    AND there.served_on > %(stale)s AND there.is_quote <= line.is_quote
)
ORDER BY 1, 2
ON CONFLICT (user_id, hash) DO UPDATE
SET served_on = excluded.served_on, is_quote = moments_app_servedline.is_quote AND excluded.is_quote
"""


@dataclass(eq=False)
class TextLine:
    text: str
    is_neutral: bool = False  # whether the line has no meaning of its own, such as an identifier in JSON

    @cached_property
    def is_marked(self) -> bool:
        return ("-" in self.text or "<" in self.text) and _MARK.search(self.text) is not None

    @cached_property
    def is_heading_or_tag(self) -> bool:
        """Return whether the line is a heading or an address, or consists only of tags."""
        head = self.text.lstrip()[:1]
        return head == "#" or (head == "<" and not _TAG.sub("", self.text).strip()) or self.is_address

    @property
    def is_address(self) -> bool:
        return "rem://" in self.text and _ADDRESS.fullmatch(self.text.strip()) is not None

    @cached_property
    def words(self) -> str:
        """The words of the line without marks, escapes, date and speaker. For a line of tags, the words in the tags."""
        text = _TAG.sub(" ", self.text) if "<" in self.text else self.text
        return _words(_MARK.sub("", text) if self.is_marked else text) or _words(self.text)

    @property
    def is_long(self) -> bool:
        return len(self.words.encode()) >= MIN_BYTES

    @property
    def is_blank(self) -> bool:
        return self.is_neutral or not self.words

    @cached_property
    def hash(self) -> int:
        return int.from_bytes(blake2b(self.words.encode(), digest_size=8).digest(), signed=True)


def _words(text: str) -> str:
    text = html.unescape(text) if "&" in text else text
    text = _NAME.sub("", _NUMBER.sub("", text))
    return plain_words(text)


def text_lines(text: str) -> list[TextLine]:
    """Return the lines of a text. If it is JSON, return the lines of its strings."""
    return [TextLine(line, is_neutral) for line, is_neutral in _lines(text, MAX_NESTING)]


def _lines(text: str, depth: int) -> list[tuple[str, bool]]:
    if depth and text.lstrip()[:1] in ("{", "["):
        try:
            strings = list(_strings(json.loads(text)))
        except (ValueError, RecursionError):
            pass  # the text only starts like JSON
        else:
            return [line for string in strings for line in _lines_within(string, depth - 1)]
    return [(line, False) for line in text.splitlines()]


def _lines_within(string: str, depth: int) -> list[tuple[str, bool]]:
    if _IDENTIFIER.fullmatch(string):
        return [(string, not _ADDRESS.fullmatch(string))]
    return _lines(string, depth)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def served_hashes(texts: Iterable[str], quoted: Iterable[str] = (), query: str = "") -> dict[int, bool]:
    """Return the hashes of the lines of served texts, and whether each is only a quote.

    Args:
        quoted: messages that the texts quote verbatim.
        query: the message that the texts were requested for. It is not memory, so its lines are excluded.
    """
    of_query, quotes = _hashes([query]), _hashes(quoted)
    return {line: line in quotes for line in _hashes(texts) - of_query}


def _hashes(texts: Iterable[str]) -> set[int]:
    hashes = {_hash(*pair) for text in texts for pair in _lines(text, MAX_NESTING)}
    return {found for found in hashes if found is not None}


@cached_by_hash(MAX_HASHES)
def _hash(text: str, is_neutral: bool) -> int | None:
    line = TextLine(text, is_neutral)
    return None if line.is_blank else line.hash


def may_be_platform_text(lines: Sequence[TextLine]) -> bool:
    """Return whether any line would be platform text if all lines had been served. A single plain line never is."""
    if len(lines) == 1 and not (lines[0].is_marked or lines[0].is_heading_or_tag):
        return False
    return _is_platform_text(lines, lambda _: True)


def platform_places(lines: Sequence[TextLine], served: Mapping[int, bool]) -> list[int]:
    """Return the indexes of lines of platform text. `served` is the result of `served_hashes`."""
    runs: list[list[int]] = [[]]  # indexes of consecutive served lines
    for place, line in enumerate(lines):
        if line.is_blank or line.is_address or line.hash in served:
            runs[-1].append(place)
        elif runs[-1]:
            runs.append([])
    own = [run for run in runs if _is_platform_text([lines[n] for n in run], lambda line: not served[line.hash])]
    # If there is platform text, runs of only tags and headings are also part of it, such as the closing tags after a
    # query.
    frames = [run for run in runs if own and all(lines[n].is_blank or lines[n].is_heading_or_tag for n in run)]
    return sorted({place for run in own + frames for place in run})


def _is_platform_text(run: Sequence[TextLine], is_memory: Callable[[TextLine], bool]) -> bool:
    """Return whether consecutive served lines have a form that only the platform writes."""
    is_framed = has_words = False
    plain = 0  # number of long lines that are memory, not quotes
    for line in run:
        if line.is_blank:
            continue
        is_framed |= line.is_heading_or_tag
        if not line.is_heading_or_tag:
            has_words = True
            plain += line.is_long and is_memory(line)
        if has_words and (is_framed or plain > 1 or (not line.is_heading_or_tag and line.is_marked)):
            return True
    return False


def text_without(lines: Sequence[TextLine], places: Iterable[int]) -> str:
    gone = set(places)
    return "\n".join(line.text for place, line in enumerate(lines) if place not in gone and not line.is_neutral).strip()


# --- storing the hashes of served lines, in the background ---
#
# A process recognizes its own lines before they are written. Other processes see them some hundredths of a second
# later. Successive contexts share most of their lines, so a process doesn't write recent lines again.


@dataclass(frozen=True)
class ServedTexts:
    user: int
    texts: Sequence[str]
    quoted: Sequence[str]
    query: str = ""

    @cached_property
    def hashes(self) -> dict[int, bool]:
        return served_hashes(self.texts, self.quoted, self.query)


class WrittenLines:
    """A cache of the lines that this process has stored: person → hash → whether the line is only a quote."""

    def __init__(self) -> None:
        self._people: ProcessCache[int, dict[int, bool]] = ProcessCache(MAX_PEOPLE, seconds=TRUSTED_SECONDS)

    def has_all(self, one: ServedTexts) -> bool:
        return not self.missing(one.user, one.hashes)

    def missing(self, user: int, lines: Mapping[int, bool]) -> dict[int, bool]:
        """Return the lines that this process may still have to write."""
        known = self._people.get(user) or {}
        return {line: is_quote for line, is_quote in lines.items() if line not in known or known[line] > is_quote}

    def add(self, by_user: Mapping[int, Mapping[int, bool]]) -> None:
        for user, lines in by_user.items():
            known = self._people.get(user)
            if known is None or len(known) + len(lines) > MAX_LINES:
                known = {}
                self._people.put(user, known)
            known.update({line: known.get(line, True) and is_quote for line, is_quote in lines.items()})

    def forget(self) -> None:
        self._people.clear()


written_lines = WrittenLines()


def note_served(user: UserProfile, texts: Sequence[str], quoted: Sequence[str], query: str = "") -> None:
    """Record texts as served to a person, in the background. The arguments are those of `served_hashes`."""
    one = ServedTexts(user.pk, texts, quoted, query)
    if not written_lines.has_all(one):
        line_buffer.add(one)


def unsaved_hashes(user_pk: int) -> dict[int, bool]:
    """Return the hashes of lines that were served to a person, but not stored yet. See `served_hashes`."""
    known: dict[int, bool] = {}
    for one in line_buffer.pending():
        if one.user == user_pk:
            _add(known, one)
    return known


def _add(known: dict[int, bool], one: ServedTexts) -> None:
    for line, is_quote in one.hashes.items():
        known[line] = known.get(line, True) and is_quote


def write(batch: Sequence[ServedTexts]) -> None:
    """Store the lines that were served to people who still exist. The caller opens the transaction."""
    there = UserProfile.objects.protect({one.user for one in batch})
    by_user: dict[int, dict[int, bool]] = {}
    for one in batch:
        if one.user in there:
            _add(by_user.setdefault(one.user, {}), one)
    new = {user: written_lines.missing(user, lines) for user, lines in by_user.items()}
    rows = [(user, line, is_quote) for user, lines in new.items() for line, is_quote in lines.items()]
    if rows:
        users, hashes, quotes = (array_of(map(int, column)) for column in zip(*rows, strict=True))
        today = timezone.localdate()
        lines: dict[str, Any] = {"users": users, "hashes": hashes, "quotes": quotes}
        with connection.cursor() as cursor:
            cursor.execute(_WRITE_SQL, lines | {"today": today, "stale": today - REFRESH_INTERVAL})
        transaction.on_commit(partial(written_lines.add, by_user))


def store_lines(user_pk: int, texts: Iterable[str]) -> None:
    """Store the lines of texts that the platform wrote for a model, in the caller's transaction."""
    write([ServedTexts(user_pk, list(texts), ())])


def store_lines_later(user_pk: int, texts: Iterable[str]) -> None:
    """Store lines as `store_lines` does, but in the background."""
    line_buffer.add(ServedTexts(user_pk, list(texts), ()))


line_buffer = WriteBuffer("served-lines", write, is_urgent=True)


# --- recognizing the lines in new turns ---

# Raw SQL, because most appends run it: the ORM takes longer to compile the query than PostgreSQL takes to run it.
_SERVED_SQL = "SELECT hash, is_quote FROM moments_app_servedline WHERE user_id = %s AND hash = ANY(%s::bigint[])"
MAX_COMPARED = 5_000  # maximum lines of a turn to compare; no context has more
CANDIDATES = "served lines"  # the key in a message's `notes` for lines that may have been served
COMPARED_ROLES = (Message.Role.USER, Message.Role.ASSISTANT, Message.Role.TOOL)  # system turns never become memory


@receiver(messages_received)
def compare_lines(messages: Iterable[NewMessage], **_: Any) -> None:
    """Hash the lines of messages that may repeat served text.

    Such a message has several lines, or one line with a date in memory's format. The lines are stored in the message's
    `notes`, and `note_platform_text` compares them within the transaction.
    """
    for new in messages:
        if new.role in COMPARED_ROLES and (text := _text(new)):
            lines = text_lines(text)
            if may_be_platform_text(lines[:MAX_COMPARED]):
                for line in lines[:MAX_COMPARED]:
                    line.hash  # noqa: B018 (cached from here on)
                new.notes[CANDIDATES] = lines


def note_platform_text(session: Session, messages: Iterable[Message]) -> None:
    """Record which lines of new turns were served before. Run no query if `compare_lines` found no candidates."""
    likely = [(turn, lines) for turn in messages if (lines := turn.notes.get(CANDIDATES))]
    known = _served(session, {line.hash for _, own in likely for line in own[:MAX_COMPARED]}) if likely else {}
    if known:
        found = [_own_text(turn, own, platform_places(own[:MAX_COMPARED], known)) for turn, own in likely]
        OwnText.objects.bulk_create([own for own in found if own])


def _text(turn: Message | NewMessage) -> str:
    if turn.role == Message.Role.TOOL and not turn.content and turn.payload is not None:
        return json.dumps(turn.payload, sort_keys=True)  # the database doesn't keep the order of keys
    return turn.content


def _served(session: Session, hashes: set[int]) -> dict[int, bool]:
    waiting = unsaved_hashes(session.user_id)
    with connection.cursor() as cursor:
        cursor.execute(_SERVED_SQL, [session.user_id, array_of(hashes)])
        known: dict[int, bool] = dict(cursor.fetchall())
    for line in hashes & waiting.keys():
        known[line] = known.get(line, True) and waiting[line]
    return known


def _own_text(turn: Message, lines: Sequence[TextLine], places: list[int]) -> OwnText | None:
    if not places:
        return None
    is_whole = not text_without(lines, places)
    return OwnText(
        session_id=turn.session_id,
        user_id=turn.user_id,
        sequence=turn.sequence,
        places=None if is_whole else places,
    )


# --- removing platform text from turns ---


def blank_platform_text(turns: Sequence[Message]) -> list[Message]:
    """Return turns as engines read them: corrected, and without platform text. Uses two statements.

    Turns that consist only of platform text become blank.
    """
    if not turns:
        return []
    places = {(own.session_id, own.sequence): own.places for own in _of(turns)}
    return as_corrected([_without(turn, places) for turn in turns])


def drop_platform_text(turns: Sequence[Message]) -> list[Message]:
    """Return turns as `blank_platform_text` does, but without those that consist only of platform text."""
    both = zip(turns, blank_platform_text(turns), strict=True)
    return [left for turn, left in both if left is turn or left.content]


def _of(turns: Sequence[Message]) -> QuerySet[OwnText]:
    return OwnText.objects.filter(
        user_id__in={turn.user_id for turn in turns},
        session_id__in={turn.session_id for turn in turns},
        sequence__in={turn.sequence for turn in turns},
    )


def _without(turn: Message, places: Mapping[tuple[int, int], list[int] | None]) -> Message:
    at = (turn.session_id, turn.sequence)
    is_result = turn.role == Message.Role.TOOL and turn.tool_name in MEMORY_TOOLS
    if at not in places and not is_result:
        return turn
    left, own = copy.copy(turn), places.get(at)
    left.content = "" if is_result or own is None else text_without(text_lines(_text(turn)), own)
    if turn.role == Message.Role.TOOL:
        left.payload = None  # otherwise, the payload would be shown instead of the text
    return left


def is_only_platform_text() -> Exists:
    at = {"user_id": OuterRef("user_id"), "session_id": OuterRef("session_id"), "sequence": OuterRef("sequence")}
    return Exists(OwnText.objects.filter(**at, places__isnull=True))
