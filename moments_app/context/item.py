"""One line of a context, and its source."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Self

from django.utils.functional import cached_property

from moments_app.engines.words import told_words, words_of
from sessions_app.text.invisible_characters import without_unseen


@dataclass
class Item:
    """A line of memory.

    Items are never changed. The class isn't frozen because that would make construction three times slower.

    Args:
        text: the stored text without invisible characters; renderings escape it.
        ref: a `rem://` address; blank for items that are not memory, for example the query.
        source_sequences: first and last sequence of its source turns, in the session it came from.
        time: the time of the message or statement, with a time zone.
        zone: the person's time zone, if the time is shown.
        name: the name of its shard.
        role: the role of a turn.
        speaker: the speaker of a turn, if the application names speakers.
        tool: the name of a tool turn.
        calls: the tool calls of an assistant turn, in the OpenAI shape.
        call_id: the call that a tool turn answers.
        joined: whether it belongs to the previous item and is left out together with it.
        why: the reason for including it, for operators; blank if the layer is reason enough.
        score: the score of a search result; for an older live turn 0.
        is_certain: whether it is always included, as far as the budget allows.
        is_neighbour: whether it was included only because an adjacent turn was found.
        is_of_span: whether it is from the time that the query names.
        marks: the end of the text that says what was corrected, or is no longer true.
        also: the addresses of the facts that the marks mention.
        written: the rendered item and its tokens, by format and layer; filled by the formats.
        cuts: beginnings of the item with their tokens, by format, layer and length; filled by `priced`.
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
    marks: str = ""
    also: tuple[str, ...] = ()
    written: dict[tuple[type, str], tuple[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    cuts: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.text.isascii() and self.name.isascii() and self.tool.isascii() and self.speaker.isascii():
            return
        for name in ("text", "name", "tool", "speaker", "marks"):
            setattr(self, name, without_unseen(getattr(self, name)))

    def marked(self, *, why: str, score: float, is_certain: bool) -> Self:
        """Return the item with another reason and score. The data computed from its text is kept."""
        item = object.__new__(type(self))
        item.__dict__.update(self.__dict__, why=why, score=score, is_certain=is_certain)
        return item

    @property
    def refs(self) -> list[str]:
        """The addresses of what the text contains."""
        return [self.ref, *self.also] if self.ref else []

    @cached_property
    def local_time(self) -> datetime | None:
        """The time in the person's time zone."""
        return self.time and self.time.astimezone(self.zone)

    @cached_property
    def local_day(self) -> date | None:
        """The day in the person's time zone."""
        return self.local_time and self.local_time.date()

    @cached_property
    def words(self) -> list[str]:
        """The words of the text, with case folded."""
        return words_of(self.text)

    @cached_property
    def word_set(self) -> frozenset[str]:
        """The set of its words."""
        return frozenset(self.words)

    @cached_property
    def said(self) -> str:
        """The words of the text without its marks, separated by spaces."""
        return " ".join(words_of(self.text.removesuffix(self.marks)) if self.marks else self.words)

    @cached_property
    def told(self) -> str:
        """The words of the text separated by spaces, without its day."""
        return told_words(self.text)
