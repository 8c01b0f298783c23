"""Combine several requests about turns into one call.

The turns are sent once, and the answer has a part for each request. The system message contains the active prompt of
each task. The requests may be about several conversations of one person. Each part is parsed and checked like the
answer to a separate call. If a part is invalid, its request is sent again in a separate call, and the other parts are
kept.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, create_model

from moments_app.engines.answers import InvalidAnswer, Shape, indexes_of, read_object
from moments_app.engines.calls.formation import FormationRequest, parse_line
from moments_app.engines.calls.moments import MomentRequest
from moments_app.engines.grounding import CheckedAnswer
from moments_app.engines.transcript import Turn, fenced

PURPOSE = "combined"
# names of the tasks in the prompt, by purpose
TASK_NAMES = {"moment-builder": "moments", "memory-extraction": "memories"}
TASKS = "Do several tasks about one conversation. Return one JSON object with the answer to each task under its name."
SEVERAL_CONVERSATIONS = (
    "There are more conversations of the same person, in order of time. A task whose name ends in a number is the same "
    "task for one of them. The streams and the known data of the first task apply to all. Write each fact once."
)

Request = MomentRequest | FormationRequest
PartAnswer = CheckedAnswer[Any] | InvalidAnswer


@dataclass(frozen=True)
class Part:
    """A request in a combined call."""

    request: Request
    sequences: Sequence[int]  # the sequence numbers of the request's turns, in order
    conversation: int = 1  # later conversations have higher numbers

    @property
    def task(self) -> str:
        return TASK_NAMES[self.request.question.shape.purpose]

    @property
    def name(self) -> str:
        return self.task if self.conversation == 1 else f"{self.task}_{self.conversation}"

    @property
    def turn_keys(self) -> list["TurnKey"]:
        return [(self.conversation, sequence) for sequence in self.sequences]


TurnKey = tuple[int, int]  # (conversation, sequence)


# --- the request ---


def prompt_of(parts: Sequence[Part]) -> str:
    """Return the system message: general instructions, then each task's active prompt under a heading."""
    prompts = {part.task: part.request.question.prompt.strip() for part in parts}
    are_several = any(part.conversation > 1 for part in parts)
    tasks = f"{TASKS} {SEVERAL_CONVERSATIONS}" if are_several else TASKS
    return "\n\n".join([tasks, *(f"# {name}\n\n{prompt}" for name, prompt in prompts.items())])


def text_of(parts: Sequence[Part]) -> str:
    """Return the user message: the known data for each task, then the turns of all requests, numbered from 0."""
    turns = _turns_of(parts)
    lines: list[str] = []
    given: set[tuple[str, str]] = set()
    for part in parts:
        # Select the known data by the turns of all requests. Then tasks of the same kind have the same lines, which are
        # sent once.
        known = replace(part.request, turns=list(turns.values())).question.known.split("\n")
        known = [line for line in known if (part.task, line) not in given]
        given |= {(part.task, line) for line in known}
        about = [] if len(part.sequences) == len(turns) else [indexes_of(_numbers(part, turns))]
        lines += [f"# {part.name}", *known, *about]
    return "\n".join([*lines, fenced(list(turns.values()))])


def _turns_of(parts: Sequence[Part]) -> dict[TurnKey, Turn]:
    """Return the numbered turns of all requests. If several requests contain a turn, use its longest version."""
    shown: dict[TurnKey, Turn] = {}
    for part in parts:
        for key, turn in zip(part.turn_keys, part.request.turns, strict=True):
            known = shown.get(key)
            if known is None or len(turn.content) > len(known.content):
                shown[key] = turn
    return {key: replace(shown[key], index=number) for number, key in enumerate(sorted(shown))}


def _numbers(part: Part, turns: dict[TurnKey, Turn]) -> list[int]:
    return [turns[key].index for key in part.turn_keys]


def shape_of(parts: Sequence[Part]) -> Shape[BaseModel]:
    shapes = {part.name: part.request.question.shape for part in parts}
    asked: Any = {name: (shape.asked or shape.model, ...) for name, shape in shapes.items()}
    model = create_model("CombinedShape", **asked)
    return Shape(PURPOSE, model)


# --- the answer ---


def parts_in(parts: Sequence[Part], completion: Any) -> list[PartAnswer]:
    """Return the answer or the error of each part. Raise `InvalidAnswer` if the completion contains none of them."""
    answer = read_object(completion)
    if not any(part.name in answer for part in parts):
        raise InvalidAnswer(json.dumps(answer), "it contains none of the parts.")
    turns = _turns_of(parts)
    texts = [f"{turn.name} {turn.content}" for turn in turns.values()]
    of_call = [replace(part, request=replace(part.request, call_texts=texts)) for part in parts]
    return [_answer_of(part, answer.get(part.name), _numbers(part, turns)) for part in of_call]


def _answer_of(part: Part, answer: Any, numbers: Sequence[int]) -> PartAnswer:
    if answer is None:
        return InvalidAnswer("", "the combined answer doesn't contain this part.")
    try:
        own = json.dumps(_with_own_indexes(answer, numbers, [turn.index for turn in part.request.turns]))
        return part.request.question.checked_text(own)
    except RecursionError:
        return InvalidAnswer("", "it is nested too deeply.")
    except InvalidAnswer as error:
        return error


def _with_own_indexes(answer: Any, numbers: Sequence[int], indexes: Sequence[int]) -> Any:
    """Return the answer with the turn numbers of the combined call replaced by the indexes in the part's request."""
    if isinstance(answer, list):
        return [_with_own_indexes(item, numbers, indexes) for item in answer]
    if not isinstance(answer, dict):
        return answer
    renamed = {name: partial(rename, numbers, indexes) for name, rename in _RENUMBERED.items()}
    return {
        name: renamed[name](value) if name in renamed else _with_own_indexes(value, numbers, indexes)
        for name, value in answer.items()
    }


def _first_index(numbers: Sequence[int], indexes: Sequence[int], value: Any) -> Any:
    return indexes[min(bisect_left(numbers, value), len(indexes) - 1)] if isinstance(value, int) else value


def _last_index(numbers: Sequence[int], indexes: Sequence[int], value: Any) -> Any:
    return indexes[max(bisect_right(numbers, value) - 1, 0)] if isinstance(value, int) else value


def _renumbered(numbers: Sequence[int], indexes: Sequence[int], value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [indexes[numbers.index(one)] for one in value if one in numbers]


def _in_lines(numbers: Sequence[int], indexes: Sequence[int], value: Any) -> Any:
    items = value if isinstance(value, list) else []
    return [_with_own_indexes(parse_line(item), numbers, indexes) for item in items] or value


_RENUMBERED = {
    "starts_at_message_idx": _first_index,
    "ends_at_message_idx": _last_index,
    "turns": _renumbered,
    "statements": _in_lines,
}
