"""One thing in a context, and where it comes from."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Self

from django.utils.functional import cached_property

from moments_app.engines.words import words_of
from moments_app.turns.words import told_words
from sessions_app.unseen import without_unseen


@dataclass
class Item:
    """A line of memory. Nobody changes one; frozen, it would take three times as long to make.

    Args:
        text: as it is stored, without characters that nobody sees; renderings escape it.
        ref: a `rem://` address; blank for what is not remembered, such as the query.
        source_sequences: first and last sequence of the turns it rests on, in the session it came from.
        time: when it was said or written, aware.
        zone: where the person is, if the time is written.
        name: of the shard it is in.
        role: of a turn.
        speaker: who says a turn, where the application names them.
        tool: the name of a tool turn.
        calls: the tool calls of an assistant turn, in the OpenAI shape.
        call_id: the call that a tool turn answers.
        joined: belongs with the item before it and goes when that goes.
        why: the reason it is there, for an operator; blank where the layer says it all.
        score: of what recall found, its value for the query; of a turn 0 where it is one of the older live ones.
        is_certain: it is there whatever else is, as far as the budget reaches.
        is_neighbour: no search found it; it stands beside what one did.
        is_of_span: it was said in the time that the query names.
        written: the item as formats write it into a layer, each with its tokens: filled by the formats.
        prices: the item as a group of its own and cut at sentences, each with its tokens: filled by `priced`.
    """

    text: str
    ref: str = ""
    source_sequences: tuple[int, int] | None = None
    time: datetime | None = None
    zone: tzinfo = UTC
    name: str = ""
    role: str = ""
    speaker: str = ""
    tool: str = ""
    calls: tuple[dict[str, object], ...] = ()
    call_id: str = ""
    joined: bool = False
    why: str = ""
    score: float = 1.0
    is_certain: bool = False
    is_neighbour: bool = False
    is_of_span: bool = False
    written: dict[tuple[type, str], tuple[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    prices: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.text.isascii() and self.name.isascii() and self.tool.isascii() and self.speaker.isascii():
            return
        for name in ("text", "name", "tool", "speaker"):
            setattr(self, name, without_unseen(getattr(self, name)))

    def marked(self, *, why: str, score: float, is_certain: bool) -> Self:
        """Return the item with another reason and value. What was worked out about its text stays known."""
        item = object.__new__(type(self))
        marks = {"why": why, "score": score, "is_certain": is_certain, "prices": {}}
        item.__dict__.update(self.__dict__, **marks)
        return item

    @cached_property
    def local_time(self) -> datetime | None:
        """The time where the person is."""
        return self.time and self.time.astimezone(self.zone)

    @cached_property
    def local_day(self) -> date | None:
        """The day where the person is."""
        return self.local_time and self.local_time.date()

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the text, whatever their case."""
        return tuple(words_of(self.text))

    @cached_property
    def word_set(self) -> frozenset[str]:
        """Each of the words once."""
        return frozenset(self.words)

    @cached_property
    def told(self) -> str:
        """The words of the text between spaces, without its day."""
        return told_words(self.text)
