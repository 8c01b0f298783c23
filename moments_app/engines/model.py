"""The engine that calls a language model at any OpenAI-compatible endpoint.

The endpoint is not trusted, so its answer is validated, and calls are limited (`endpoint.py`). The job retries.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import httpx2

from moments_app.engines import shared_call, transcript
from moments_app.engines.answers import InvalidAnswer, Question, Shape
from moments_app.engines.calls.formation import FormationAnswer, FormationRequest
from moments_app.engines.calls.moments import MomentAnswer, MomentRequest
from moments_app.engines.calls.texts import (
    ConsolidationAnswer,
    ConsolidationRequest,
    DigestAnswer,
    DigestRequest,
    QueryAnswer,
    QueryRequest,
    SummaryAnswer,
    SummaryRequest,
)
from moments_app.engines.endpoint import Endpoint, Refused
from moments_app.engines.grounding import Answer, CheckedAnswer
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.engines.shared_call import Part, PartAnswer

QUOTED_ANSWER_MAX = 8_000  # maximum characters of an invalid answer that are quoted in the second attempt

ChatMessage = dict[str, str]
Read = TypeVar("Read")

# The index in `_formats` of the format that an endpoint and model accept. Later calls start with this format.
_accepted_format: dict[tuple[str, str], int] = {}


class HasQuestion(Protocol[Answer]):
    @property
    def question(self) -> Question[Answer]: ...


class ModelEngine:
    """Writes memory text with a language model. See `Endpoint`.

    Args:
        timeout: Total seconds for one call, however slowly the answer arrives.
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
        self._timeout = timeout
        # the requests of a shared call, with their answers
        self._shared: list[tuple[HasQuestion[Any], PartAnswer]] = []

    def with_model(self, model: str) -> "ModelEngine":
        engine = copy(self)
        engine._endpoint = replace(self._endpoint, model=model)
        engine.name = engine._endpoint.name
        engine._shared = []
        return engine

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        return self._answer(request)

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        return self._answer(request)

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        return self._answer(request)

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        return self._answer(request)

    def digest(self, request: DigestRequest) -> DigestAnswer:
        return self._answer(request)

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Write a search query, with a single attempt, because the user is waiting."""
        question = request.question
        try:
            return self._ask(question.shape, _messages(question.prompt, question.text), question.checked_answer).answer
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None

    def with_answers(self, parts: Sequence[Part]) -> "ModelEngine":
        """Request several answers in one call, with a single attempt. Return an engine that has the valid answers."""
        messages = _messages(shared_call.prompt_of(parts), shared_call.text_of(parts))
        try:
            answers = self._ask(shared_call.shape_of(parts), messages, partial(shared_call.parts_in, parts))
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None
        for part, answer in zip(parts, answers, strict=True):
            self._record_part(part.request.question.shape.purpose, answer)
        engine = copy(self)
        engine._shared = [(part.request, answer) for part, answer in zip(parts, answers, strict=True)]
        return engine

    def _record_part(self, purpose: str, answer: PartAnswer) -> None:
        """Record a part of a shared call under its own purpose. A separate record has the tokens and the time."""
        record = CallRecord(purpose=purpose, engine=self.name, latency_ms=0, is_part=True)
        if isinstance(answer, CheckedAnswer):
            self._endpoint.record(replace(record, kept=answer.kept, left_out=answer.left_out))
        else:
            error = self._endpoint.invalid(answer)
            self._endpoint.record(replace(record, error_kind=error.kind, error=str(error)))

    def _answer(self, request: HasQuestion[Answer]) -> Answer:
        """Return the answer from a shared call if there is one. Otherwise, call the model.

        If the model's answer is invalid or has no supported content, call the model a second time.
        """
        shared = next((answer for asked, answer in self._shared if asked == request), None)
        if isinstance(shared, CheckedAnswer):
            answer: Answer = shared.answer
            return answer
        question = request.question
        messages = _messages(question.prompt, question.text)
        try:
            return self._ask(question.shape, messages, question.checked_answer).answer
        except InvalidAnswer as error:
            messages += _repair(error)
        try:
            return self._ask(question.shape, messages, partial(question.checked_answer, is_last=True)).answer
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
            counts=lambda read: (read.kept, read.left_out) if isinstance(read, CheckedAnswer) else (0, ()),
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
    answer = error.answer[:QUOTED_ANSWER_MAX] or "(no answer)"  # some endpoints reject a message without text
    ask = f"That answer can't be used: {error.problem} Answer again, complete and valid."
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": ask}]


def _with_shape(messages: list[ChatMessage], shape: Shape[Any]) -> list[ChatMessage]:
    """Return the messages with the answer's shape added to the first one, so prompts need not describe it."""
    system, *others = messages
    return [system | {"content": f"{system['content']}\n{shape.as_text}"}, *others]


def _refuses_format(response: httpx2.Response) -> bool:
    """Return whether an error may be caused by the response format, so another format should be tried."""
    if response.status_code in (404, 501):  # these have many causes, so the body must mention the format
        return any(word in response.content for word in (b"response_format", b"json_schema", b"json_object"))
    return response.status_code in (400, 422)
