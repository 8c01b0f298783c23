"""Forming memories: what of the turns goes into which stream."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.nearest import nearest, unlike
from moments_app.engines.transcript import Turn, as_data

WEAK = 0.5  # most confidence of an item that few words of the turns support
MOST_ENDED = 10  # facts that one item may end
SHARD = "shard "  # that the labels of streams which many people share begin with
SHOWN_FACTS = 4  # of those that hold, and
SHOWN_LINES = 2  # of what else a stream has, that a model is shown


@dataclass(frozen=True)
class StreamSection:
    """A stream that a formation is for.

    Args:
        label: by which the answer names it.
        prompt: what it takes in.
        observation_words, fact_words: the most words of an item; 0 if it takes none.
        current: its text and items as they are, so that they are not said again.
        facts_now: the person's own that hold, by the numbers by which an item says which of them it ends.
    """

    label: str
    prompt: str
    observation_words: int
    fact_words: int
    current: str
    facts_now: Mapping[int, str] = field(default_factory=dict)

    @property
    def known(self) -> list[str]:
        """Each line that it has."""
        return [*self.current.splitlines(), *self.facts_now.values()]


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
    return kind if kind in get_args(KindOfItem) else "other"


class DraftAtom(BaseModel):
    """One item and the turns it comes from.

    Args:
        text: what is remembered.
        message_indexes: of the turns.
        ends: numbers of the facts that hold no longer since.
        valid_from: since when it holds, where that was said.
        confidence: how sure it is, up to 1.
        kind: what it tells of.
        other_person: the name of the person that it is about, if that is not the user.
    """

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2_000)
    message_indexes: list[int] = Field(min_length=1, max_length=100)
    ends: list[int] = Field(default_factory=list, max_length=MOST_ENDED)
    valid_from: str = Field(default="", max_length=40)
    confidence: float = Field(default=1.0, ge=0, le=1)
    kind: Annotated[KindOfItem, BeforeValidator(_known_kind)] = Field(
        default="other",
        description="What the text tells of: identity is name, age or origin; instruction is how they want to be "
        "answered; plan, task and goal lie ahead; problem is unsolved; event happened once; lesson is for the "
        "assistant.",
    )
    other_person: str = Field(
        default="",
        max_length=255,
        description="If the text is about a person other than the user: their name as in the text. Otherwise empty.",
    )


class DraftAtoms(BaseModel):
    """What goes into one stream."""

    model_config = ConfigDict(extra="forbid")

    stream: str
    observations: list[DraftAtom] = Field(default_factory=list)
    facts: list[DraftAtom] = Field(default_factory=list)


class FormationShape(BaseModel):
    """What a model is asked for."""

    model_config = ConfigDict(extra="forbid")

    streams: list[DraftAtoms]


class FormationAnswer(BaseModel):
    """What is taken: entries of any shape, so that a bad item costs no good one. Each is checked by itself."""

    model_config = ConfigDict(extra="forbid")

    streams: list[Any] = Field(max_length=200)


# A formation may be empty, and each item is checked by itself: see `streams/formation.py`.
SHAPE = Shape("memory-extraction", FormationAnswer, lambda answer: "", FormationShape)


def judged(request: FormationRequest, answer: FormationAnswer) -> Judged[FormationAnswer]:
    """Return an answer without the items that neither the turns nor the known lines support.

    If none is left, the model is asked again, and what is left of its second answer is taken.
    """
    grounds = Grounds(request.turns, [line for section in request.sections for line in section.known])
    streams = [_judged_entry(entry, grounds) if isinstance(entry, dict) else entry for entry in answer.streams]
    has_lost_all = grounds.left_out and not grounds.kept_count
    problem = "the turns support none of the items." if has_lost_all else ""
    return grounds.judged(answer.model_copy(update={"streams": streams}), problem, is_usable=True)


def _judged_entry(entry: dict[str, Any], grounds: Grounds) -> dict[str, Any]:
    lists = {kind: items for kind in ("observations", "facts") if isinstance(items := entry.get(kind), list)}
    of_many = str(entry.get("stream", "")).startswith(SHARD)
    judged = {kind: [_judged_item(item, grounds, of_many=of_many) for item in items] for kind, items in lists.items()}
    return entry | {kind: [item for item in items if item is not None] for kind, items in judged.items()}


def _judged_item(item: Any, grounds: Grounds, *, of_many: bool) -> Any:
    """Return an item, with less confidence if its support is weak; None if it has none.

    Items of another shape are dropped later, where the shape is checked. A person's order to the assistant is no item
    for a shard, which many people share.
    """
    text = item.get("text") if isinstance(item, dict) else None
    if not isinstance(text, str):
        return item
    if not grounds.takes(text, grounds.complaint(text, may_be_weak=True, may_be_asked_for=not of_many)):
        return None
    given = item.get("confidence", 1.0)
    return item | {"confidence": min(given, WEAK)} if isinstance(given, float | int) and grounds.is_weak(text) else item


def known_text(request: FormationRequest) -> str:
    """Return what stands before the turns in a request for memories: a section for each stream."""
    return "\n".join(f"Stream: {as_data(_shown(section, request.turns))}" for section in request.sections)


def _shown(section: StreamSection, turns: Sequence[Turn]) -> dict[str, object]:
    """Return a stream as a model is shown it: of what it has, that which is nearest to the turns."""
    numbers = list(section.facts_now)
    near = nearest([section.facts_now[number] for number in numbers], turns, SHOWN_FACTS)
    facts = {numbers[place]: section.facts_now[numbers[place]] for place in near}
    lines = unlike(section.current.splitlines(), section.facts_now.values())
    optional = {
        "observations": _most(section.observation_words),
        "facts": _most(section.fact_words),
        "has_already": "\n".join(lines[place] for place in nearest(lines, turns, SHOWN_LINES)),
        "facts_now": facts,
    }
    always = {"stream": section.label, "takes_in": section.prompt}
    if section.label.startswith(SHARD):
        always["shared"] = "by many people: nothing may point to one of them"
    return always | {name: value for name, value in optional.items() if value}


def _most(words: int) -> str:
    return f"at most {words} words each" if words else ""
