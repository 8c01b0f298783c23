"""Form memories: extract statements from turns, grouped by stream."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from moments_app.engines.answers import Question, Shape, length_of
from moments_app.engines.grounding import CheckedAnswer, Evidence
from moments_app.engines.statements import OTHER, kind_of
from moments_app.engines.transcript import Turn, as_data
from sessions_app import lexemes

WEAK = 0.5  # maximum confidence of a statement that few words of the turns support
MAX_ENDED = 10  # maximum number of known statements that a new statement may declare untrue
MAX_TURNS = 100  # maximum number of source turns of a statement
SHARD = "shard "  # prefix of the labels of streams that many people share
STATEMENT_WORDS = 25  # word limit in the default prompt; a stream's own limit is sent only if it is lower
_NUMBERS = r"\d{1,9}(?:\s*[,–-]\s*\d{1,9})*"
_ENDED = r"(?:\d{1,9}(?:\s*[–-]\s*\d{1,9})?|[A-Z])"
_RANGE = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_LETTER = re.compile("[A-Z]")
_START = re.compile(rf"([A-Za-z]+) ({_NUMBERS})")
_CLAUSE = re.compile(r" (as(?= [A-Z](?: |$))|about|(?:maybe )?ends(?= (?:\d|[A-Z]\b))) ")  # a name may contain "as a"
_ENDS = re.compile(rf"{_ENDED}(?:\s*,\s*{_ENDED})*")
_VALUES = {"as": _LETTER, "about": re.compile(".{1,255}"), "ends": _ENDS, "maybe ends": _ENDS}
# A prompt has one known statement per `TURNS_EACH` turns, but at least `SHOWN_MIN` and at most `SHOWN_MAX`.
SHOWN_MIN, SHOWN_MAX, TURNS_EACH = 8, 40, 3
REPEATED_SHARE = 0.8  # minimum share of a text's words that another text must contain to count as a repetition
MIN_SCORE = 1.0  # minimum score, reached by one word that no other text has, or by several words that few texts have

_DATE = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]")


@dataclass(frozen=True)
class StreamSection:
    """A stream to form memories for."""

    label: str  # the stream's name in the answer
    prompt: str  # the content that the stream accepts
    observation_words: int  # maximum words of an observation; 0 if the stream doesn't accept observations
    fact_words: int  # maximum words of a fact; 0 if the stream doesn't accept facts
    current: str  # the stream's text and its other items, shown to avoid repetition
    # The person's current statements in the stream, by number. For a session, includes statements from other
    # sessions. A new statement lists the numbers of those that it ends.
    known: Mapping[int, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        return [*self.current.splitlines(), *self.known.values()]

    @property
    def words(self) -> int:
        return min(words for words in (self.observation_words, self.fact_words) if words)


@dataclass(frozen=True)
class FormationRequest:
    # the turns since the last formation, oldest first; their indexes are the session's sequence numbers
    turns: Sequence[Turn]
    sections: Sequence[StreamSection]
    prompt: str  # the text of the active prompt version
    others: Collection[str] = ()  # names of the speakers other than the user
    call_texts: Sequence[str] = ()  # all turns of a combined call

    @property
    def question(self) -> "Question[FormationAnswer]":
        limit = min(max(SHOWN_MIN, len(self.turns) // TURNS_EACH), SHOWN_MAX)
        known = "\n".join(f"Stream: {as_data(_shown(section, self.turns, limit))}" for section in self.sections)
        return Question(SHAPE, self.prompt, known, partial(check_answer, self), self.turns, 2 * length_of(self.turns))


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
    """Replace an unknown kind with `other`, so that the item is kept."""
    return kind if kind in get_args(KindOfItem) else OTHER


# Kinds of observations, which a consolidation merges. Other kinds are facts, which stay separate.
OBSERVED_KINDS = frozenset({"preference", "instruction", OTHER})
LESSON = "lesson"


Letter = Annotated[str, Field(pattern="^[A-Z]$")]


class DraftAtom(BaseModel):
    """A new statement, before it is stored as an atom."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2_000)  # one sentence
    kind: Annotated[KindOfItem, BeforeValidator(_known_kind)] = "other"
    turns: list[int] = Field(max_length=MAX_TURNS)  # indexes of its source turns
    letter: Letter | Literal[""] = ""  # the letter by which another statement of the same answer can end this one
    # The statements that this one ends: numbers of known statements, and letters of other new statements for the same
    # stream.
    ends: list[int | Letter] = Field(default_factory=list, max_length=MAX_ENDED)
    confidence: float = Field(default=1.0, ge=0, le=1)
    # the name of the person that the statement is about; blank for the user
    other_person: str = Field(default="", max_length=255)


class DraftAtoms(BaseModel):
    """The new items of a stream. Its lessons are stored in streams of their own."""

    model_config = ConfigDict(extra="forbid")

    stream: str
    observations: list[DraftAtom] = Field(default_factory=list)
    facts: list[DraftAtom] = Field(default_factory=list)
    lessons: list[DraftAtom] = Field(default_factory=list)


class StreamStatements(BaseModel):
    """A model's statements for one stream. Each is a line, because an object would need twice as many tokens."""

    stream: str
    statements: list[str] = Field(
        description="Lines `KIND TURNS [as LETTER] [about NAME] [ends NUMBERS]: TEXT`. KIND: identity (name, age, "
        "origin), relationship, home, work, health, preference, instruction (how to be answered), plan, task, goal, "
        "problem, event, lesson (what the assistant should do differently for everybody) or other. TURNS: the indexes "
        "of its source turns, as 4 or 4,7. `about NAME`: the person it is about, unless that is the user, with the "
        "name as in TEXT. `ends NUMBERS` or `maybe ends NUMBERS`: the known statements that it makes untrue. To end an "
        "earlier line of your own answer for this stream, also in another task, give that line a letter (`as A`), and "
        "write `ends A`. Use each letter once."
    )


class FormationShape(BaseModel):
    """The schema that is sent to the model."""

    streams: list[StreamStatements]


class FormationAnswer(BaseModel):
    """The schema that validates the answer. It is less strict than `FormationShape`."""

    model_config = ConfigDict(extra="forbid")

    streams: list[Any] = Field(max_length=200)  # checked separately, so an invalid entry doesn't affect the others


# The answer may be empty. `streams/formation.py` validates each item separately.
SHAPE = Shape("memory-extraction", FormationAnswer, asked=FormationShape)


def check_answer(request: FormationRequest, answer: FormationAnswer) -> CheckedAnswer[FormationAnswer]:
    """Sort a model's statements into observations, facts and lessons, and drop unsupported ones.

    If none is supported, the model is called again, and the supported statements of its second answer are used.
    """
    known = [line for section in request.sections for line in section.lines]
    evidence = Evidence(request.turns, known, request.call_texts)
    sections = {section.label: section for section in request.sections}
    streams = [
        _checked_entry(entry, evidence, sections) if isinstance(entry, dict) else entry for entry in answer.streams
    ]
    has_items = any(entry.get("statements") for entry in answer.streams if isinstance(entry, dict))
    problem = "the turns support none of the items." if evidence.left_out else "no statement is `KIND TURNS: TEXT`."
    problem = problem if has_items and not evidence.kept_count else ""
    return evidence.checked_answer(answer.model_copy(update={"streams": streams}), problem, is_usable=True)


def parse_line(item: Any) -> Any:
    """Parse a line into the fields of a statement. Return an invalid item unchanged; validation drops it later."""
    head, _, text = item.strip().partition(":") if isinstance(item, str) else ("", "", "")
    start, *rest = _CLAUSE.split(head)
    clauses = dict(zip(rest[::2], rest[1::2], strict=True))
    found, text = _START.fullmatch(start), text.lstrip()
    # Invalid start, no text, or a repeated clause.
    if not (found and text) or len({name.removeprefix("maybe ") for name in clauses}) < len(rest) // 2:
        return item
    if not all(_VALUES[name].fullmatch(value) for name, value in clauses.items()):
        return item
    fields = {"text": text, "kind": found[1].lower(), "turns": _numbers_in(found[2])}
    if letter := clauses.get("as"):
        fields["letter"] = letter
    if name := clauses.get("about"):
        fields["other_person"] = name
    if ended := clauses.get("ends") or clauses.get("maybe ends"):
        fields["ends"] = [*_numbers_in(ended), *_LETTER.findall(ended)][:MAX_ENDED]
        fields["confidence"] = WEAK if "maybe ends" in clauses else 1.0
    return fields


def _numbers_in(text: str) -> list[int]:
    """Return the numbers of a list such as 4,7-9."""
    numbers: list[int] = []
    for first, last in _RANGE.findall(text):
        numbers += range(int(first), min(int(last or first), int(first) + MAX_TURNS) + 1)
    return numbers[:MAX_TURNS]


def _checked_entry(entry: dict[str, Any], evidence: Evidence, sections: Mapping[str, StreamSection]) -> dict[str, Any]:
    label, said = str(entry.get("stream", "")), entry.get("statements")
    if not isinstance(said, list):
        return {"stream": label, "facts": said}  # validation drops and counts it
    items = list(map(parse_line, said))
    letters = [item["letter"] for item in items if isinstance(item, dict) and "letter" in item]
    lists: dict[str, Any] = {"observations": [], "facts": [], "lessons": [], "letters": letters}
    for item in items:
        if (kept := _checked_item(item, evidence, of_many=label.startswith(SHARD))) is not None:
            lists[_list_of(kept, sections.get(label))].append(kept)
    return {"stream": label, **lists}


def _list_of(item: Any, section: StreamSection | None) -> str:
    """Return the name of the list that a statement belongs to: `observations`, `facts` or `lessons`."""
    text, kind = (item.get("text"), _known_kind(item.get("kind"))) if isinstance(item, dict) else ("", OTHER)
    if kind == LESSON:
        return "lessons"
    if section and not (section.observation_words and section.fact_words):
        return "observations" if section.observation_words else "facts"
    kind = kind_of(text) if kind == OTHER and isinstance(text, str) else kind
    return "observations" if kind in OBSERVED_KINDS else "facts"


def _checked_item(item: Any, evidence: Evidence, *, of_many: bool) -> Any:
    """Return a statement, with lower confidence if its support is weak, or None if it has no support."""
    text = item.get("text") if isinstance(item, dict) else None
    if not isinstance(text, str):
        return item  # validation drops it
    # Lessons may instruct the assistant. Other statements may contain an instruction only if they repeat one that the
    # person gave. Statements for a shard may not, because many people share it.
    is_lesson = item.get("kind") == LESSON
    reason = evidence.drop_reason(text, may_instruct=is_lesson, may_be_weak=True, may_repeat_instruction=not of_many)
    if not evidence.accepts(text, reason):
        return None
    return item | {"confidence": WEAK} if evidence.is_weak(text) else item


def _shown(section: StreamSection, turns: Sequence[Turn], limit: int) -> dict[str, object]:
    numbers = list(section.known)
    near = nearest([section.known[number] for number in numbers], turns, limit)
    lines = not_repeated(section.current.splitlines(), section.known.values())
    optional = {
        "max_words": section.words if section.words < STATEMENT_WORDS else 0,
        "known": {numbers[place]: section.known[numbers[place]] for place in near},
        "has": "\n".join(lines[place] for place in nearest(lines, turns, limit // 4)),
    }
    always = {"stream": section.label, "takes_in": section.prompt}
    if section.label.startswith(SHARD):
        always["shared"] = "by many people: no statement may identify one of them"
    return always | {name: value for name, value in optional.items() if value}


# --- the choice of known texts to send ---


def nearest(texts: Sequence[str], turns: Iterable[Turn], limit: int) -> list[int]:
    """Return the sorted indexes of the texts that share the most words with the turns.

    Words that are in many texts have a low weight. Texts that share only such words are left out.
    """
    if len(texts) <= limit:
        return list(range(len(texts)))
    said = [turn.content for turn in turns]
    languages = lexemes.languages_of(said)  # detected from all turns, because the language of a short text is uncertain
    stems_of_turns = frozenset(stem for text in said for stem in lexemes.stems_in(text, languages))
    shared = [lexemes.stems_in(text, languages) & stems_of_turns for text in texts]
    having = Counter(stem for stems in shared for stem in stems)
    worth = [sum(1 / having[stem] for stem in sorted(stems)) for stems in shared]
    best = sorted(range(len(texts)), key=lambda place: (-worth[place], place))[:limit]
    return sorted(place for place in best if worth[place] >= MIN_SCORE)


def not_repeated(texts: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return the texts that no text in `others` repeats, ignoring dates."""
    known = list(others)
    languages = lexemes.languages_of([*texts, *known])
    said = [lexemes.stems_in(_DATE.sub(" ", other), languages) for other in known]
    own = [lexemes.stems_in(_DATE.sub(" ", text), languages) for text in texts]
    return [
        text
        for text, stems in zip(texts, own, strict=True)
        if not any(len(stems & other) >= REPEATED_SHARE * len(stems) for other in said)
    ]
