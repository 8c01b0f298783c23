"""The profile of a person as lines: what an engine is shown of them, and the changes that it answers with.

A text is taken apart into lines and made of them again without a difference: a list's items, under their heading, and
the sentences of what is no list. So a profile is changed line by line, whoever wrote it and in whatever form.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.grounding import FEW_WORDS, KEPT_SHARE, REPLACED, Grounds
from sessions_app import lexemes

LINE_MAX = 1_000  # characters of a line that a model writes
CHANGES_MAX = 100  # of one answer
ITEM = "- "
END = "end"  # what stands for the end of a line where texts are counted
UNKNOWN_LINE = "no such line"
FIXED = "a person wrote the line"
UNSOURCED = "no source turn"
KNOWN = "known already"

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?=\s)|(?<=[。！？]))(\s*)")


@dataclass(frozen=True)
class Line:
    """A line of a profile.

    Args:
        text: as it stands there.
        heading: that it stands under; blank for none.
        joint: what parts it from the line before.
        key: primary key of its row; None while it has none.
        is_pinned: a person wrote it: engines leave it as it is.
        sources: sequences of the turns that it was just made of; blank for a line that was there before.
        before: key of the line that it takes the place of; None for a new one.
    """

    text: str
    heading: str = ""
    joint: str = "\n"
    key: int | None = None
    is_pinned: bool = False
    sources: tuple[int, ...] = ()
    before: int | None = None


@dataclass(frozen=True)
class Phrase:
    """An interest or a topic that a call has added.

    Args:
        kind: `interest` or `topic`.
        text: of it.
        sources: sequences of the turns that say it.
    """

    kind: str
    text: str
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Profile:
    """The profile of the person before a call.

    Args:
        summary: its text.
        interests, preferred_topics: short phrases.
        kept: its lines as they are kept; blank: those of the text.
        added: the phrases that calls have added, as far as turns say them.
    """

    summary: str = ""
    interests: Sequence[str] = ()
    preferred_topics: Sequence[str] = ()
    kept: Sequence[Line] = field(default=(), compare=False)
    added: Sequence[Phrase] = field(default=(), compare=False)

    @property
    def lines(self) -> list[Line]:
        """The lines of the text."""
        return list(self.kept) or lines_of(self.summary)


class DraftChange(BaseModel):
    """A change of one line of the profile."""

    model_config = ConfigDict(extra="forbid")

    line: int = Field(default=0, description="Number of the line that is changed or ended; 0 for a new line.")
    text: str = Field(default="", max_length=LINE_MAX, description="The line as it is to be; blank to end it.")
    message_indexes: list[int] = Field(default_factory=list, max_length=100, description="Turns that say so.")


# --- a text and its lines ---


def lines_of(text: str) -> list[Line]:
    """Take a text apart."""
    lines: list[Line] = []
    heading = ""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if row.startswith(ITEM):
            lines.append(Line(row, heading))
        elif row.endswith(":") and following.startswith(ITEM):
            heading = row
        else:
            heading = ""
            lines += _sentences(row)
    return lines


def _sentences(row: str) -> Iterable[Line]:
    parts = _SENTENCE_END.split(row)
    joints = ["\n", *parts[1::2]]
    return (Line(text, joint=joint) for text, joint in zip(parts[::2], joints, strict=True) if text)


def text_of(lines: Sequence[Line]) -> str:
    """Make a text of lines."""
    text, heading = "", ""
    for line in lines:
        if line.heading and line.heading != heading:
            text += f"\n{line.heading}"
        heading = line.heading
        text += line.joint + line.text
    return text.strip()


# --- what an answer does to lines ---


def rewritten(
    lines: Sequence[Line], text: str, sources: Mapping[str, tuple[int, ...]] | None = None, *, by_hand: bool = False
) -> list[Line]:
    """Return the lines of a new text: those that were there before are the same lines still.

    Args:
        lines: before.
        text: that a writer of whole texts gives.
        sources: of new lines, by their texts.
        by_hand: a person wrote it; else pinned lines stay, whatever it says.
    """
    left = list(lines)
    result = []
    for new in lines_of(text):
        same = next((old for old in left if old.text == new.text and old.heading == new.heading), None)
        same = same or next((old for old in left if old.text == new.text), None)
        if same:
            left.remove(same)
            result.append(replace(same, heading=new.heading, joint=new.joint))
        else:
            result.append(replace(new, sources=(sources or {}).get(new.text, ())))
    if by_hand:
        return _in_place_of(left, result)
    return _with_pinned(result, [line for line in left if line.is_pinned])


def _in_place_of(gone: list[Line], lines: Sequence[Line]) -> list[Line]:
    """Return lines of which each new one takes the place of the line that is gone and most like it, if any is."""
    result = []
    for line in lines:
        alike = [] if line.key else get_close_matches(line.text, [old.text for old in gone], 1)
        old = next((old for old in gone if old.text in alike), None)
        if old:
            gone.remove(old)
        result.append(replace(line, before=old.key) if old else line)
    return result


def _with_pinned(lines: list[Line], pinned: Sequence[Line]) -> list[Line]:
    """Put lines that stay back under their headings."""
    for line in pinned:
        places = [number for number, other in enumerate(lines) if other.heading == line.heading]
        lines.insert(places[-1] + 1 if places else len(lines), line)
    return lines


def changed(lines: Sequence[Line], changes: Sequence[DraftChange], sequences: Sequence[int]) -> list[Line]:
    """Return the lines with changes that were judged.

    Args:
        lines: before, numbered from 1.
        changes: of them.
        sequences: that the turns of the call have in their session, by their indexes.
    """
    result: list[Line | None] = list(lines)
    for change in changes:
        sources = tuple(sorted({sequences[index] for index in change.message_indexes}))
        if change.line:
            result[change.line - 1] = changed_text(lines[change.line - 1], change.text, sources)
        else:
            result.append(Line(" ".join(change.text.split()), sources=sources))
    return [line for line in result if line]


def changed_text(line: Line, text: str, sources: tuple[int, ...] = ()) -> Line | None:
    """Return what takes the place of a line, a list's item for an item; None where the text is blank."""
    said = " ".join(text.split()).removeprefix(ITEM)
    mark = ITEM if line.text.startswith(ITEM) else ""
    return replace(line, text=mark + said, key=None, sources=sources, before=line.key) if said else None


# --- judging ---


def judged_changes(
    lines: Sequence[Line], changes: Sequence[DraftChange], grounds: Grounds, turns: int
) -> list[DraftChange]:
    """Return the changes that can be made; each of the others is counted by its reason.

    Args:
        lines: that the model was shown, numbered from 1.
        changes: that it wants.
        grounds: what it was shown.
        turns: number of turns of the call.
    """
    taken: list[DraftChange] = []
    for change in changes:
        change = change.model_copy(update={"message_indexes": [n for n in change.message_indexes if 0 <= n < turns]})
        complaint = _problem(change, lines, taken) or (grounds.complaint(change.text) if change.text else "")
        if grounds.takes(change.text or END, complaint):
            taken.append(change)
    if not _leaves_enough(lines, taken):
        for change in (change for change in taken if change.line):
            grounds.takes_back(change.text or END, REPLACED)
        taken = [change for change in taken if not change.line]
    return taken


def _problem(change: DraftChange, lines: Sequence[Line], taken: Sequence[DraftChange]) -> str:
    """Return why a change can't be made, whatever it says; blank if it can."""
    changed_before = {one.line for one in taken if one.line}
    if not 0 <= change.line <= len(lines) or change.line in changed_before or not (change.line or change.text.strip()):
        return UNKNOWN_LINE
    if change.line and lines[change.line - 1].is_pinned:
        return FIXED
    if not change.message_indexes:
        return UNSOURCED
    there = {line.text.removeprefix(ITEM) for line in lines} | {one.text for one in taken if one.text}
    return KNOWN if change.text.removeprefix(ITEM) in there else ""


def _leaves_enough(lines: Sequence[Line], changes: Sequence[DraftChange]) -> bool:
    """Tell whether a profile is carried on by changes: else it would be replaced by them as a whole."""
    before = lexemes.stems_in(text_of(lines))
    after = lexemes.stems_in(text_of(changed(lines, [_unsourced(change) for change in changes], ())))
    return len(before) < FEW_WORDS or len(before & after) >= KEPT_SHARE * len(before)


def _unsourced(change: DraftChange) -> DraftChange:
    return change.model_copy(update={"message_indexes": []})
