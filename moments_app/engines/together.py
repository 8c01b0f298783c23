"""Several calls about the same turns as one: the turns are sent once, and the answer has a part for each.

What is asked is composed of the prompts in force, as they are. Each part is read and judged as an answer to its own
call would be, so a bad one costs no good one. The parts wait in memory for the jobs that would have asked, and serve a
job that asks the very same; one that finds none, or whose part is no good, asks by itself. So nothing rests on a
combined call: whatever becomes of it, or of the process that made it, only its tokens are lost.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel, create_model

from moments_app.engines.answers import InvalidAnswer, read_object, validated_text
from moments_app.engines.calls.digest import DigestRequest
from moments_app.engines.calls.formation import FormationRequest
from moments_app.engines.calls.moments import MomentRequest
from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Judged
from moments_app.engines.questions import Question, indexes_of, question_of
from moments_app.engines.transcript import Turn, fenced

PURPOSE = "combined"
NAMES = {"moment-builder": "moments", "memory-extraction": "memories", "session-digest": "digest"}  # of parts
TASKS = "Several tasks about one conversation: answer each under its name in one JSON object."

Request = MomentRequest | FormationRequest | DigestRequest
Came = Judged[Any] | InvalidAnswer


@dataclass(frozen=True)
class Part:
    """A call that can be made together with others.

    Args:
        request: of the call.
        sequences: that its turns have in their session, by their places.
    """

    request: Request
    sequences: Sequence[int]

    @property
    def question(self) -> Question[Any]:
        """What is asked."""
        return question_of(self.request)

    @property
    def name(self) -> str:
        """The name of its task, and of its part of the answer."""
        return NAMES[self.question.shape.purpose]


# --- asking ---


def prompt_of(parts: Sequence[Part]) -> str:
    """Return the prompts in force, each under its heading."""
    return "\n\n".join([TASKS, *(f"# {part.name}\n\n{part.question.prompt.strip()}" for part in parts)])


def text_of(parts: Sequence[Part]) -> str:
    """Return the user message: what is known for each task, and all turns once, by their sequences."""
    turns = _turns_of(parts)
    return "\n".join([*(_known(part, turns) for part in parts), fenced(turns)])


def _known(part: Part, turns: Sequence[Turn]) -> str:
    """Return what is known for a task, and which turns it is about, where those are not all."""
    lines = [f"# {part.name}", part.question.known]
    return "\n".join(lines if len(part.sequences) == len(turns) else [*lines, indexes_of(part.sequences)])


def _turns_of(parts: Sequence[Part]) -> list[Turn]:
    """Return all turns, each as the part shows it that shows most of it."""
    shown: dict[int, Turn] = {}
    for part in parts:
        for sequence, turn in zip(part.sequences, part.request.turns, strict=True):
            known = shown.get(sequence)
            if known is None or len(turn.content) > len(known.content):
                shown[sequence] = Turn(**vars(turn) | {"index": sequence})
    return [shown[sequence] for sequence in sorted(shown)]


def shape_of(parts: Sequence[Part]) -> Shape[BaseModel]:
    """Return the shape of the answer: that of each part under its name."""
    shapes = {part.name: part.question.shape for part in parts}
    asked: Any = {name: (shape.asked or shape.model, ...) for name, shape in shapes.items()}
    model = create_model("CombinedShape", **asked)
    return Shape(PURPOSE, model, lambda answer: "")


# --- reading ---


def parts_in(parts: Sequence[Part], completion: Any) -> list[Came]:
    """Return what came of each part, in their order.

    Args:
        parts: that were asked for.
        completion: the endpoint's JSON, whatever it is.

    Raises:
        InvalidAnswer: it has none of them.
    """
    answer = read_object(completion)
    if not any(part.name in answer for part in parts):
        raise InvalidAnswer(json.dumps(answer), "it has none of the parts.")
    return [_came(part, answer.get(part.name)) for part in parts]


def _came(part: Part, answer: Any) -> Came:
    question = part.question
    if answer is None:
        return InvalidAnswer("", "the combined answer has no such part.")
    if isinstance(part.request, MomentRequest):
        answer = _in_places(answer, part.sequences)
    try:
        return validated_text(question.shape, question.allowance, question.judge, json.dumps(answer))
    except InvalidAnswer as error:
        return error


def _in_places(answer: Any, sequences: Sequence[int]) -> Any:
    """Return an answer with the places of turns in its part where it names their sequences."""
    if isinstance(answer, list):
        return [_in_places(item, sequences) for item in answer]
    if not isinstance(answer, dict):
        return answer
    places = {name: partial(place, sequences) for name, place in _PLACES.items()}
    return {
        name: places[name](value) if name in places else _in_places(value, sequences) for name, value in answer.items()
    }


def _first_place(sequences: Sequence[int], value: Any) -> Any:
    return bisect_left(sequences, value) if isinstance(value, int) else value


def _last_place(sequences: Sequence[int], value: Any) -> Any:
    return max(bisect_right(sequences, value) - 1, 0) if isinstance(value, int) else value


def _known_places(sequences: Sequence[int], value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [sequences.index(one) for one in value if one in sequences]


_PLACES = {
    "starts_at_message_idx": _first_place,
    "ends_at_message_idx": _last_place,
    "message_indexes": _known_places,
}


# --- waiting for who asks ---


@dataclass
class Answers:
    """The answers that wait, each for one who asks the same of the same engine."""

    _waiting: list[tuple[str, Request, Came]] = field(default_factory=list)

    def keep(self, engine: str, parts: Sequence[Part], came: Sequence[Came]) -> None:
        """Have answers wait."""
        self._waiting += [(engine, part.request, each) for part, each in zip(parts, came, strict=True)]

    def take(self, engine: str, request: Any) -> Came | None:
        """Return the answer to a request, once; None where none waits."""
        for number, (by, asked, came) in enumerate(self._waiting):
            if (by, asked) == (engine, request):
                del self._waiting[number]
                return came
        return None


_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def answers_kept() -> Iterator[None]:
    """Keep answers of combined calls for a job and its steps: the outermost of such blocks does."""
    token = _answers.set(_answers.get() or Answers())
    try:
        yield
    finally:
        _answers.reset(token)


def answers_that_wait() -> Answers:
    """Return the answers that wait; outside a job there are none, and none are kept."""
    return _answers.get() or Answers()
