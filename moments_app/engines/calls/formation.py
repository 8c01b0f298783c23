"""Forming memories: the statements that turns make, by the stream that each goes into."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.nearest import nearest, unlike
from moments_app.engines.statements.kinds import OTHER, kind_of
from moments_app.engines.transcript import Turn, as_data

WEAK = 0.5  # maximum confidence of a statement that few words of the turns support
MOST_ENDED = 10  # known statements that one statement may end
MOST_TURNS = 100  # that one statement may name
SHARD = "shard "  # start of the labels of streams that many people share
STATEMENT_WORDS = 25  # that the shipped prompt allows; a stream's own limit is shown if it is lower
_NUMBERS = r"\d{1,9}(?:\s*[,–-]\s*\d{1,9})*"
_RANGE = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_LINE = re.compile(
    rf"(?P<kind>[A-Za-z]+) (?P<turns>{_NUMBERS})(?: about (?P<about>[^:\n]{{1,255}}?))?"
    rf"(?: (?P<maybe>maybe )?ends (?P<ends>{_NUMBERS}))?:\s*(?P<text>.+)",
    re.DOTALL,
)
# Known statements that a model is shown: at least, at most, and one for each so many turns.
SHOWN_LEAST, SHOWN_MOST, TURNS_EACH = 8, 40, 3


@dataclass(frozen=True)
class StreamSection:
    """A stream that a formation is for.

    Args:
        label: by which the answer names it.
        prompt: what it takes in.
        observation_words, fact_words: the most words of an item; 0 if it takes none.
        current: its text and its other items, so that they are not said again.
        known: the person's current statements in it, by the number by which a new statement names those that it ends.
    """

    label: str
    prompt: str
    observation_words: int
    fact_words: int
    current: str
    known: Mapping[int, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """Each line that it has."""
        return [*self.current.splitlines(), *self.known.values()]

    @property
    def words(self) -> int:
        """The lowest limit of the items that it takes."""
        return min(words for words in (self.observation_words, self.fact_words) if words)


@dataclass(frozen=True)
class FormationRequest:
    """Everything an engine gets to form memories from: one call for all streams.

    Args:
        turns: since the last formation, oldest first; their indexes are sequences of the session.
        sections: one for each stream.
        prompt: the text of the prompt version in force.
        others: names of people other than the user who speak in the turns.
    """

    turns: Sequence[Turn]
    sections: Sequence[StreamSection]
    prompt: str
    others: Collection[str] = ()


KindOfItem = Literal[
    "identity",
    "relationship",
    "home",
    "work",
    "health",
    "preference",
    "instruction",
    "plan",
    "task",
    "goal",
    "problem",
    "event",
    "lesson",
    "other",
]


def _known_kind(kind: Any) -> Any:
    """Return `other` for a kind that there isn't: it costs no good item."""
    return kind if kind in get_args(KindOfItem) else OTHER


# What a consolidation merges, where a stream takes observations; other kinds are facts, which stand by themselves.
MERGED = frozenset({"preference", "instruction", OTHER})
LESSON = "lesson"


class DraftAtom(BaseModel):
    """A statement.

    Args:
        text: one sentence.
        kind: what it tells of.
        turns: indexes of the turns that make it.
        ends: numbers of the known statements that no longer hold because of it.
        confidence: how sure it is, up to 1.
        other_person: the name of the person that it is about, if that is not the user.
    """

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2_000)
    kind: Annotated[KindOfItem, BeforeValidator(_known_kind)] = "other"
    turns: list[int] = Field(max_length=MOST_TURNS)
    ends: list[int] = Field(default_factory=list, max_length=MOST_ENDED)
    confidence: float = Field(default=1.0, ge=0, le=1)
    other_person: str = Field(default="", max_length=255)


class DraftAtoms(BaseModel):
    """What goes into one stream, and lessons, which go into the streams of lessons."""

    model_config = ConfigDict(extra="forbid")

    stream: str
    observations: list[DraftAtom] = Field(default_factory=list)
    facts: list[DraftAtom] = Field(default_factory=list)
    lessons: list[DraftAtom] = Field(default_factory=list)


class StreamStatements(BaseModel):
    """The statements that a model has for one stream: lines, because an object each would double the tokens."""

    stream: str
    statements: list[str] = Field(
        description="Lines `KIND TURNS: TEXT`. KIND: identity (name, age, origin), relationship, home, work, health, "
        "preference, instruction (how to be answered), plan, task, goal, problem, event, lesson (what the assistant "
        "should do otherwise, whoever asks) or other. TURNS: the indexes of its source turns, as 4 or 4,7. If known "
        "statements hold no longer because of it: `KIND TURNS ends NUMBERS: TEXT`, or `maybe ends`. If it is about "
        "a person other than the user: `KIND TURNS about NAME: TEXT`, with the name as in TEXT."
    )


class FormationShape(BaseModel):
    """What a model is asked for."""

    streams: list[StreamStatements]


class FormationAnswer(BaseModel):
    """What is taken: entries of any shape, so that a bad item costs no good one. Each is checked by itself."""

    model_config = ConfigDict(extra="forbid")

    streams: list[Any] = Field(max_length=200)


# A formation may be empty, and each item is checked by itself: see `streams/formation.py`.
SHAPE = Shape("memory-extraction", FormationAnswer, lambda answer: "", FormationShape)


def judged(request: FormationRequest, answer: FormationAnswer) -> Judged[FormationAnswer]:
    """Return a model's statements as observations, facts and lessons, without those that nothing it was shown supports.

    If none is left, the model is asked again, and what is left of its second answer is taken.
    """
    grounds = Grounds(request.turns, [line for section in request.sections for line in section.lines])
    sections = {section.label: section for section in request.sections}
    streams = [
        _judged_entry(entry, grounds, sections) if isinstance(entry, dict) else entry for entry in answer.streams
    ]
    has_items = any(entry.get("statements") for entry in answer.streams if isinstance(entry, dict))
    problem = "the turns support none of the items." if grounds.left_out else "no statement is `KIND TURNS: TEXT`."
    problem = problem if has_items and not grounds.kept_count else ""
    return grounds.judged(answer.model_copy(update={"streams": streams}), problem, is_usable=True)


def parsed(item: Any) -> Any:
    """Return a line as the fields of a statement. Another item is returned as it is, to be checked by its shape."""
    found = _LINE.fullmatch(item.strip()) if isinstance(item, str) else None
    if found is None:
        return item
    fields = {"text": found["text"], "kind": found["kind"].lower(), "turns": _numbers_in(found["turns"])}
    if found["about"]:
        fields["other_person"] = found["about"]
    if found["ends"]:
        fields |= {"ends": _numbers_in(found["ends"])[:MOST_ENDED], "confidence": WEAK if found["maybe"] else 1.0}
    return fields


def _numbers_in(text: str) -> list[int]:
    """Return the numbers of a list with ranges, such as 4,7-9."""
    numbers: list[int] = []
    for first, last in _RANGE.findall(text):
        numbers += range(int(first), min(int(last or first), int(first) + MOST_TURNS) + 1)
    return numbers[:MOST_TURNS]


def _judged_entry(entry: dict[str, Any], grounds: Grounds, sections: Mapping[str, StreamSection]) -> dict[str, Any]:
    label, said = str(entry.get("stream", "")), entry.get("statements")
    if not isinstance(said, list):
        return {"stream": label, "facts": said}  # dropped, and counted
    lists: dict[str, Any] = {"observations": [], "facts": [], "lessons": []}
    for item in map(parsed, said):
        if (kept := _judged_item(item, grounds, of_many=label.startswith(SHARD))) is not None:
            lists[_list_of(kept, sections.get(label))].append(kept)
    return {"stream": label, **lists}


def _list_of(item: Any, section: StreamSection | None) -> str:
    """Return the list for a statement. Of two kinds of items, a stream merges those of some kinds as observations."""
    text, kind = (item.get("text"), _known_kind(item.get("kind"))) if isinstance(item, dict) else ("", OTHER)
    if kind == LESSON:
        return "lessons"
    if section and not (section.observation_words and section.fact_words):
        return "observations" if section.observation_words else "facts"
    kind = kind_of(text) if kind == OTHER and isinstance(text, str) else kind
    return "observations" if kind in MERGED else "facts"


def _judged_item(item: Any, grounds: Grounds, *, of_many: bool) -> Any:
    """Return a statement, with less confidence if its support is weak; None if it has none.

    Items of another shape are dropped later, where the shape is checked. A lesson may order the assistant. A person's
    order to the assistant is no item for a shard, which many people share.
    """
    text = item.get("text") if isinstance(item, dict) else None
    if not isinstance(text, str):
        return item
    is_lesson = item.get("kind") == LESSON
    complaint = grounds.complaint(text, may_order=is_lesson, may_be_weak=True, may_be_asked_for=not of_many)
    if not grounds.takes(text, complaint):
        return None
    return item | {"confidence": WEAK} if grounds.is_weak(text) else item


def known_text(request: FormationRequest) -> str:
    """Return what stands before the turns in a request for memories: a section for each stream."""
    most = min(max(SHOWN_LEAST, len(request.turns) // TURNS_EACH), SHOWN_MOST)
    return "\n".join(f"Stream: {as_data(_shown(section, request.turns, most))}" for section in request.sections)


def _shown(section: StreamSection, turns: Sequence[Turn], most: int) -> dict[str, object]:
    """Return a stream as a model is shown it: of what it has, the lines that are nearest to the turns."""
    numbers = list(section.known)
    near = nearest([section.known[number] for number in numbers], turns, most)
    lines = unlike(section.current.splitlines(), section.known.values())
    optional = {
        "max_words": section.words if section.words < STATEMENT_WORDS else 0,
        "known": {numbers[place]: section.known[numbers[place]] for place in near},
        "has": "\n".join(lines[place] for place in nearest(lines, turns, most // 4)),
    }
    always = {"stream": section.label, "takes_in": section.prompt}
    if section.label.startswith(SHARD):
        always["shared"] = "by many people: nothing may point to one of them"
    return always | {name: value for name, value in optional.items() if value}
