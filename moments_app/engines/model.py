"""The engine that calls a language model at any OpenAI-compatible endpoint.

The endpoint is not trusted, so its answer is validated, and calls are limited (`endpoint.py`). The job retries.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import httpx2

from moments_app.engines import shared_call, transcript
from moments_app.engines.answers import InvalidAnswer, validated
from moments_app.engines.calls import consolidation, recall_query
from moments_app.engines.calls.consolidation import ConsolidationAnswer, ConsolidationRequest
from moments_app.engines.calls.digest import DigestAnswer, DigestRequest
from moments_app.engines.calls.formation import FormationAnswer, FormationRequest
from moments_app.engines.calls.moments import MomentAnswer, MomentRequest
from moments_app.engines.calls.recall_query import QueryAnswer, QueryRequest
from moments_app.engines.calls.shape import Answer, Shape
from moments_app.engines.calls.summary import SummaryAnswer, SummaryRequest
from moments_app.engines.endpoint import Endpoint, Refused
from moments_app.engines.grounding import Judge, Judged
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.engines.shared_call import ANSWER_MIN_ALLOWANCE, Part, PartAnswer, Question, Request, question_of

QUOTED_ANSWER_MAX = 8_000  # characters of an invalid answer that are quoted for repair

ChatMessage = dict[str, str]
Read = TypeVar("Read")

# For each endpoint and model, the index in `_formats` of the accepted format. If one is rejected, later calls start
# with the next.
_accepted_format: dict[tuple[str, str], int] = {}


class ModelEngine:
    """Writes memory text with a language model.

    Args:
        base_url: URL of the endpoint. None for OpenAI's own.
        api_key: May be blank if the endpoint needs none.
        timeout: Total seconds for one call, however slowly the answer arrives.
        record: Called once for each HTTP call, even if it fails.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key: str,
        model: str,
        timeout: float = 60.0,
        max_response_bytes: int = 1_000_000,
        record: Callable[[CallRecord], None],
    ) -> None:
        self._endpoint = Endpoint(
            base_url=base_url,
            path="/chat/completions",
            api_key=api_key,
            model=model,
            max_response_bytes=max_response_bytes,
            record=record,
        )
        self.name = self._endpoint.name
        self._record = record
        self._came: list[tuple[Request, PartAnswer]] = []
        self._timeout = timeout
        self._with_model = partial(
            ModelEngine,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_response_bytes=max_response_bytes,
            record=record,
        )

    def with_model(self, model: str) -> "ModelEngine":
        return self._with_model(model=model)

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        return self._told(request, MomentAnswer)

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        return self._told(request, SummaryAnswer)

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        return self._told(request, FormationAnswer)

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        given = sum(len(part.label) + len(part.text) for part in [*request.lines, *request.observations])
        allowance = max(ANSWER_MIN_ALLOWANCE, 2 * given)
        judge = partial(consolidation.judged, request)
        return self._answer(consolidation.SHAPE, request.rules, consolidation.as_message(request), allowance, judge)

    def digest(self, request: DigestRequest) -> DigestAnswer:
        return self._told(request, DigestAnswer)

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Request a query in a single call, because the user is waiting and there is no time for a second attempt."""
        messages = _messages(request.prompt, recall_query.as_message(request))
        read = partial(validated, recall_query.SHAPE, ANSWER_MIN_ALLOWANCE, Judged)
        try:
            return self._ask(recall_query.SHAPE, messages, read).answer
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None

    def with_answers(self, parts: Sequence[Part]) -> "ModelEngine":
        """Request several answers in one call, with no second attempt. Return an engine that has the valid ones."""
        shape = shared_call.shape_of(parts)
        messages = _messages(shared_call.prompt_of(parts), shared_call.text_of(parts))
        try:
            came = self._ask(shape, messages, partial(shared_call.parts_in, parts))
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None
        for part, each in zip(parts, came, strict=True):
            self._note(part.question.shape.purpose, each)
        engine = copy(self)
        engine._came = [(part.request, each) for part, each in zip(parts, came, strict=True)]
        return engine

    def _told(self, request: Any, answer: type[Answer]) -> Answer:
        """Return the answer to a request about turns, from a shared call if it has one, or else from a new call."""
        came = next((came for asked, came in self._came if asked == request), None)
        if isinstance(came, Judged) and isinstance(came.answer, answer):
            return came.answer
        question: Question[Answer] = question_of(request)
        return self._answer(question.shape, question.prompt, question.text, question.allowance, question.judge)

    def _note(self, purpose: str, came: PartAnswer) -> None:
        """Record a part of a shared call under its own purpose. The call's own record has the tokens and the time."""
        record = CallRecord(purpose=purpose, engine=self.name, latency_ms=0, is_part=True)
        if isinstance(came, Judged):
            self._record(replace(record, kept=came.kept, left_out=came.left_out))
        else:
            error = self._endpoint.invalid(came)
            self._record(replace(record, error_kind=error.kind, error=str(error)))

    def _answer(self, shape: Shape[Answer], prompt: str, request: str, allowance: int, judge: Judge[Answer]) -> Answer:
        """Call the model, and call it again if the answer is invalid or has no supported content."""
        messages = _messages(prompt, request)
        read = partial(validated, shape, allowance, judge)
        try:
            return self._ask(shape, messages, read).answer
        except InvalidAnswer as error:
            messages += _repair(error)
        try:
            return self._ask(shape, messages, partial(read, is_last=True)).answer
        except InvalidAnswer as error:
            raise EngineError("invalid_answer", f"{self.name} gave no valid answer twice: {error.summary}") from None

    def _ask(self, shape: Shape[Any], messages: list[ChatMessage], read: Callable[[Any], Read]) -> Read:
        """Call the model once, with the first response format that the endpoint accepts."""
        formats = _formats(shape)
        address = self._endpoint.address
        for number in range(_accepted_format.get(address, 0), len(formats)):
            try:
                asked = _with_shape(messages, shape) if number else messages
                extra = {"response_format": formats[number]} if formats[number] else {}
                answer = self._call(shape.purpose, {"messages": asked, **extra}, read)
            except Refused:
                continue
            except InvalidAnswer:
                _accepted_format[address] = number
                raise
            _accepted_format[address] = number
            return answer
        raise AssertionError("a request without a response format is never refused for its format")

    def _call(self, purpose: str, body: dict[str, Any], read: Callable[[Any], Read]) -> Read:
        return self._endpoint.call(
            purpose,
            body,
            seconds=self._timeout,
            read=read,
            refuses=lambda response: "response_format" in body and _refuses_format(response),
            counts=lambda read: (read.kept, read.left_out) if isinstance(read, Judged) else (0, ()),
        )


def _messages(prompt: str, request: str) -> list[ChatMessage]:
    return [
        {"role": "system", "content": transcript.instructions(prompt, has_turns=transcript.BEGIN in request)},
        {"role": "user", "content": request},
    ]


def _formats(shape: Shape[Any]) -> list[dict[str, Any]]:
    """Return the response formats in the order of the attempts."""
    name = shape.purpose.replace("-", "_")
    strict = {"name": name, "strict": True, "schema": shape.schema}
    return [{"type": "json_schema", "json_schema": strict}, {"type": "json_object"}, {}]


def _repair(error: InvalidAnswer) -> list[ChatMessage]:
    """Return the messages that are added for the second attempt."""
    # Some endpoints reject a message without text.
    answer = error.answer[:QUOTED_ANSWER_MAX] or "(no answer)"
    ask = f"That answer can't be used: {error.problem} Answer again, complete and valid."
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": ask}]


def _with_shape(messages: list[ChatMessage], shape: Shape[Any]) -> list[ChatMessage]:
    """Return the messages with the answer's shape added to the first one, so prompts need not describe it."""
    system, *others = messages
    return [system | {"content": f"{system['content']}\n{shape.as_text}"}, *others]


def _refuses_format(response: httpx2.Response) -> bool:
    """Return whether another response format may help.

    A 404 or 501 has many causes, so its body must mention the format.
    """
    if response.status_code in (404, 501):
        return any(word in response.content for word in (b"response_format", b"json_schema", b"json_object"))
    return response.status_code in (400, 422)
