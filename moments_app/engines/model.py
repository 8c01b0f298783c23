"""The engine that asks a language model, through any endpoint that speaks the OpenAI protocol.

The endpoint is not trusted: a call is bounded in time and size, its answer is validated, and of an error only its kind
and status are told, since a body may quote the prompt or the key. Trying again is left to the job.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import openai
from openai.lib._pydantic import to_strict_json_schema
from pydantic import ValidationError

from moments_app.engines import transcript
from moments_app.engines.base import CallRecord, EngineError, MomentAnswer, MomentRequest

PURPOSE = "moment-builder"
# An answer longer than what it is made of is no summary; short windows may be outgrown by names and tags.
ANSWER_MIN_ALLOWANCE = 6_000  # characters
QUOTED_ANSWER_MAX = 8_000  # characters of a bad answer shown again for repair

# Formats in the order tried: an endpoint that refuses one is asked with the next, from then on.
_FORMATS: list[dict[str, Any]] = [
    {
        "type": "json_schema",
        "json_schema": {"name": "moments", "strict": True, "schema": to_strict_json_schema(MomentAnswer)},
    },
    {"type": "json_object"},
    {},
]
_accepted_format: dict[tuple[str | None, str], int] = {}


class ModelEngine:
    """Builds moments with a language model.

    Args:
        base_url: of the endpoint; None is OpenAI's own.
        api_key: may be blank where the endpoint needs none.
        model: its name there.
        timeout: seconds for one call in all, however slowly its answer drips.
        max_response_bytes: larger answers are refused.
        record: called once for each HTTP call, however it ends.
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
        self.name = f"openai:{model}"
        self._endpoint = (base_url, model)
        self._api_key = api_key
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._record = record

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Asks for the moments of a window; an answer that doesn't validate gets one attempt at repair.

        Raises:
            EngineError: see `base.Engine`.
        """
        messages = [
            {"role": "system", "content": transcript.instructions(request.prompt)},
            {"role": "user", "content": transcript.request_text(request)},
        ]
        allowance = max(ANSWER_MIN_ALLOWANCE, sum(len(turn.content) for turn in request.turns))
        try:
            return self._ask(messages, allowance)
        except _InvalidAnswer as error:
            messages += [
                {"role": "assistant", "content": error.answer[:QUOTED_ANSWER_MAX]},
                {
                    "role": "user",
                    "content": f"That answer can't be used: {error.problem} Answer again, complete and valid.",
                },
            ]
        try:
            return self._ask(messages, allowance)
        except _InvalidAnswer as error:
            raise EngineError("invalid_answer", f"{self.name} gave no valid answer twice: {error.summary}") from None

    def _ask(self, messages: list[dict[str, str]], allowance: int) -> MomentAnswer:
        """One answer, with the first response format that the endpoint takes."""
        for number in range(_accepted_format.get(self._endpoint, 0), len(_FORMATS)):
            try:
                answer = self._call(messages, _FORMATS[number], allowance)
            except _FormatRefused:
                continue
            except _InvalidAnswer:
                _accepted_format[self._endpoint] = number
                raise
            _accepted_format[self._endpoint] = number
            return answer
        raise AssertionError("a request without a response format is never refused for its format")

    def _call(self, messages: list[dict[str, str]], response_format: dict[str, Any], allowance: int) -> MomentAnswer:
        """One HTTP call, recorded however it ends."""
        started = time.monotonic()
        usage: dict[str, int | None] = {}
        failure: Exception | None = None
        try:
            completion = self._completion(messages, response_format)
            usage = _usage(completion)
            return _validated(completion, allowance)
        except _InvalidAnswer as error:
            failure = EngineError("invalid_answer", f"{self.name} gave no valid answer: {error.summary}")
            raise
        except openai.OpenAIError as error:
            failure = translated = self._translated(error)
            if response_format and translated.kind == "rejected" and _status(error) in (400, 404, 422, 501):
                raise _FormatRefused from None
            raise translated from None
        except EngineError as error:
            failure = error
            raise
        finally:
            self._record(
                CallRecord(
                    purpose=PURPOSE,
                    engine=self.name,
                    latency_ms=round((time.monotonic() - started) * 1000),
                    input_tokens=usage.get("prompt_tokens"),
                    output_tokens=usage.get("completion_tokens"),
                    error_kind=getattr(failure, "kind", ""),
                    error=str(failure or ""),
                    retry_after=getattr(failure, "retry_after", None),
                )
            )

    def _completion(self, messages: list[dict[str, str]], response_format: dict[str, Any]) -> Any:
        """The endpoint's JSON, whatever it is."""
        transport = _BoundedTransport(time.monotonic() + self._timeout, self._max_response_bytes)
        extra = {"response_format": response_format} if response_format else {}
        with (
            httpx2.Client(transport=transport, timeout=self._timeout) as http_client,
            openai.OpenAI(
                base_url=self._endpoint[0],
                api_key=self._api_key or "none",
                max_retries=0,
                timeout=self._timeout,
                http_client=http_client,
            ) as client,
        ):
            body = {"model": self._endpoint[1], "messages": messages, **extra}
            response = client.post("/chat/completions", cast_to=httpx2.Response, body=body)
            try:
                return json.loads(response.content)
            except (ValueError, RecursionError):
                raise _InvalidAnswer("", "it is not JSON.") from None

    def _translated(self, error: openai.OpenAIError) -> EngineError:
        """The SDK's error as ours: kind and status, never its text."""
        for cause in (error, error.__cause__):
            if isinstance(cause, EngineError):
                return EngineError(cause.kind, f"{self.name} {cause}")
        if isinstance(error, openai.APITimeoutError):
            return EngineError("timeout", f"{self.name} did not answer within {self._timeout:g} s.")
        status = _status(error)
        if status is None:
            return EngineError("unavailable", f"{self.name} can't be reached ({type(error).__name__}).")
        if status == 429:
            return EngineError("rate_limited", f"{self.name} is rate limited.", retry_after=_retry_after(error))
        kind = "server_error" if status >= 500 else "rejected"
        return EngineError(kind, f"{self.name} answered with status {status}.", retry_after=_retry_after(error))


class _InvalidAnswer(Exception):
    """An answer that can't be used.

    Args:
        answer: its text.
        problem: what is wrong with it, for the model; may quote the answer.
        summary: the same for operators, without a word of the answer.
    """

    def __init__(self, answer: str, problem: str, summary: str = "") -> None:
        self.answer, self.problem, self.summary = answer, problem, summary or problem


class _FormatRefused(Exception):
    """The endpoint doesn't know the response format."""


class _BoundedTransport(httpx2.HTTPTransport):
    """Ends a response, of whatever status, that comes too slowly or grows too large."""

    def __init__(self, deadline: float, max_bytes: int) -> None:
        super().__init__()
        self._deadline = deadline
        self._max_bytes = max_bytes

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _BoundedStream(response.stream, self._deadline, self._max_bytes)
        return response


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, deadline: float, max_bytes: int) -> None:
        self._stream, self._deadline, self._left = stream, deadline, max_bytes

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise EngineError("too_large", "gave an answer larger than allowed.")
            if time.monotonic() > self._deadline:
                raise EngineError("timeout", "did not finish its answer in time.")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _validated(completion: Any, allowance: int) -> MomentAnswer:
    text = _text(completion)
    if len(text) > allowance:
        raise _InvalidAnswer(text, f"it has {len(text)} characters, more than the conversation.")
    try:
        return MomentAnswer.model_validate_json(_json_object(text))
    except ValidationError as error:
        problems = [(".".join(map(str, e["loc"])), e["msg"], e["type"]) for e in error.errors(include_url=False)[:10]]
        raise _InvalidAnswer(
            text,
            "; ".join(f"{where or 'the answer'}: {message}" for where, message, _ in problems) + ".",
            # Names of fields may be the model's own; the kinds of error are not.
            "; ".join(sorted({kind for _, _, kind in problems})) + ".",
        ) from None


def _text(completion: Any) -> str:
    """The answer's text.

    Raises:
        _InvalidAnswer: when there is none: wrong shape, empty, cut off, refused.
    """
    try:
        choice = completion["choices"][0]
        message = choice["message"]
        text = message["content"]
    except (KeyError, IndexError, TypeError):
        raise _InvalidAnswer("", "it has no choices with a message.") from None
    if message.get("refusal"):
        raise _InvalidAnswer("", "the model refused.")
    if not isinstance(text, str) or not text.strip():
        raise _InvalidAnswer("", "it is empty.")
    if choice.get("finish_reason") == "length":
        raise _InvalidAnswer(text, "it was cut off at the model's limit; be shorter.")
    return text


def _json_object(text: str) -> str:
    """The JSON object in an answer that may stand in a fence or between words."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _usage(completion: Any) -> dict[str, int | None]:
    usage = completion.get("usage") if isinstance(completion, dict) else None
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if isinstance(value, int) and 0 <= value < 2**31}


def _status(error: Exception) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _retry_after(error: Exception) -> float | None:
    """Seconds of the Retry-After header, given as a number or a date (RFC 9110, 10.2.3); at most an hour."""
    header = error.response.headers.get("Retry-After", "") if isinstance(error, openai.APIStatusError) else ""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else None
