"""The engine that asks a language model, through any endpoint that speaks the OpenAI protocol.

The endpoint is not trusted: a call is bounded in time and size, its answer is validated, and of an error only its kind
and status are told, since a body may quote the prompt or the key. Trying again is left to the job.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import openai

from moments_app.engines import transcript
from moments_app.engines.answers import (
    CONSOLIDATION,
    FORMATION,
    MOMENTS,
    SUMMARY,
    Answer,
    InvalidAnswer,
    Shape,
    validated,
)
from moments_app.engines.base import (
    CallRecord,
    ConsolidationAnswer,
    ConsolidationRequest,
    EngineError,
    FormationAnswer,
    FormationRequest,
    MomentAnswer,
    MomentRequest,
    SummaryAnswer,
    SummaryRequest,
)
from moments_app.engines.bounded import BoundedTransport, TooLarge

# Named here, or the client would read the environment: where texts and key are sent is a matter of settings alone.
OPENAI_URL = "https://api.openai.com/v1"
# An answer longer than what it is made of is no summary; short windows may be outgrown by names and tags.
ANSWER_MIN_ALLOWANCE = 6_000  # characters
QUOTED_ANSWER_MAX = 8_000  # characters of a bad answer shown again for repair

Message = dict[str, str]

# Which of `_formats` an endpoint and model take; one that refuses a format is asked with the next, from then on.
_accepted_format: dict[tuple[str, str], int] = {}

# Whatever a call may end in, from a misspelt URL to a text that can't be encoded. Their own texts may quote anything.
_CALL_ERRORS = (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, TooLarge, OSError, ValueError)


class ModelEngine:
    """Writes memory text with a language model.

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
        self._endpoint = (base_url or OPENAI_URL, model)
        self._api_key = api_key.strip()  # keys read from files end in a line break
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._record = record

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Asks for the moments of a window; see `base.Engine`."""
        given = sum(len(turn.content) for turn in request.turns)
        allowance = max(ANSWER_MIN_ALLOWANCE, given) + len(request.profile.summary)
        return self._answer(MOMENTS, request.prompt, transcript.moments_request(request), allowance)

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Asks for the summary with the new turns in it; see `base.Engine`."""
        given = sum(len(turn.content) for turn in request.turns) + len(request.base_text)
        return self._answer(
            SUMMARY, request.prompt, transcript.summary_request(request), max(ANSWER_MIN_ALLOWANCE, 2 * given)
        )

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """Asks what goes into each stream; see `base.Engine`."""
        given = sum(len(turn.content) for turn in request.turns)
        return self._answer(
            FORMATION, request.prompt, transcript.formation_request(request), max(ANSWER_MIN_ALLOWANCE, 2 * given)
        )

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        """Asks for the text with the observations in it; see `base.Engine`."""
        given = len(request.current) + sum(map(len, request.observations))
        return self._answer(
            CONSOLIDATION, request.rules, transcript.consolidation_request(request), max(ANSWER_MIN_ALLOWANCE, given)
        )

    def _answer(self, shape: Shape[Answer], prompt: str, request: str, allowance: int) -> Answer:
        """Asks, and once more when the answer doesn't validate.

        Raises:
            EngineError: see `base.Engine`.
        """
        self._check_key()
        messages = [
            {"role": "system", "content": transcript.instructions(prompt)},
            {"role": "user", "content": request},
        ]
        try:
            return self._ask(shape, messages, allowance)
        except InvalidAnswer as error:
            messages += _repair(error)
        try:
            return self._ask(shape, messages, allowance)
        except InvalidAnswer as error:
            raise EngineError("invalid_answer", f"{self.name} gave no valid answer twice: {error.summary}") from None

    def _check_key(self) -> None:
        # Refused before anything else sees it: the client's errors and logs would quote it.
        if not (self._api_key.isascii() and self._api_key.isprintable()):
            raise EngineError("rejected", f"{self.name} can't be asked: the API key has characters no header takes.")

    def _ask(self, shape: Shape[Answer], messages: list[Message], allowance: int) -> Answer:
        """One answer, with the first response format that the endpoint takes."""
        formats = _formats(shape)
        for number in range(_accepted_format.get(self._endpoint, 0), len(formats)):
            try:
                told = _told_shape(messages, shape) if number else messages
                answer = self._call(shape, told, formats[number], allowance)
            except _FormatRefused:
                continue
            except InvalidAnswer:
                _accepted_format[self._endpoint] = number
                raise
            _accepted_format[self._endpoint] = number
            return answer
        raise AssertionError("a request without a response format is never refused for its format")

    def _call(
        self, shape: Shape[Answer], messages: list[Message], response_format: dict[str, Any], allowance: int
    ) -> Answer:
        """One HTTP call, recorded however it ends."""
        started = time.monotonic()
        usage: dict[str, int] = {}
        failure: EngineError | None = EngineError("unavailable", f"The call of {self.name} was broken off.")
        try:
            completion = self._completion(messages, response_format)
            usage = _usage(completion)
            answer = validated(completion, shape, allowance)
            failure = None
            return answer
        except InvalidAnswer as error:
            failure = EngineError("invalid_answer", f"{self.name} gave no valid answer: {error.summary}")
            raise
        except _CALL_ERRORS as error:
            failure = self._translated(error)
            if response_format and _refuses_format(error):
                raise _FormatRefused from None
            raise failure from None
        finally:
            self._record(self._recorded(shape.purpose, started, usage, failure))

    def _completion(self, messages: list[Message], response_format: dict[str, Any]) -> Any:
        """The endpoint's JSON, whatever it is."""
        base_url, model = self._endpoint
        extra = {"response_format": response_format} if response_format else {}
        transport = BoundedTransport(timeout=self._timeout, max_bytes=self._max_response_bytes)
        # A client for each call: nothing of it is shared by threads or outlives a fork.
        with (
            httpx2.Client(transport=transport, timeout=self._timeout) as http_client,
            openai.OpenAI(
                base_url=base_url,
                api_key=self._api_key or "none",
                max_retries=0,
                timeout=self._timeout,
                http_client=http_client,
            ) as client,
        ):
            body = {"model": model, "messages": messages, **extra}
            response = client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError):
            raise InvalidAnswer("", "it is not JSON.") from None

    def _translated(self, error: Exception) -> EngineError:
        """A call's error as ours: kind and status, never its text."""
        if isinstance(error, TooLarge):
            return EngineError("too_large", f"{self.name} gave an answer of over {self._max_response_bytes:,} bytes.")
        if isinstance(error, openai.APITimeoutError):
            return EngineError("timeout", f"{self.name} did not answer within {self._timeout:g} s.")
        if not isinstance(error, openai.APIStatusError):
            return EngineError("unavailable", f"{self.name} can't be reached ({type(error).__name__}).")
        wait = _retry_after(error)
        if error.status_code == 429:
            return EngineError("rate_limited", f"{self.name} is rate limited.", retry_after=wait)
        kind = "server_error" if error.status_code >= 500 else "rejected"
        return EngineError(kind, f"{self.name} answered with status {error.status_code}.", retry_after=wait)

    def _recorded(self, purpose: str, started: float, usage: dict[str, int], failure: EngineError | None) -> CallRecord:
        return CallRecord(
            purpose=purpose,
            engine=self.name,
            latency_ms=round((time.monotonic() - started) * 1000),
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            error_kind=failure.kind if failure else "",
            error=str(failure or ""),
            retry_after=failure.retry_after if failure else None,
        )


class _FormatRefused(Exception):
    """The endpoint doesn't know the response format."""


def _formats(shape: Shape[Any]) -> list[dict[str, Any]]:
    """Response formats in the order tried."""
    name = shape.purpose.replace("-", "_")
    strict = {"name": name, "strict": True, "schema": shape.schema}
    return [{"type": "json_schema", "json_schema": strict}, {"type": "json_object"}, {}]


def _repair(error: InvalidAnswer) -> list[Message]:
    """What is added to the conversation for the second attempt."""
    # Some endpoints refuse a message without text.
    answer = error.answer[:QUOTED_ANSWER_MAX] or "(no answer)"
    ask = f"That answer can't be used: {error.problem} Answer again, complete and valid."
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": ask}]


def _told_shape(messages: list[Message], shape: Shape[Any]) -> list[Message]:
    """The same messages, the first telling the shape of the answer: a prompt need not."""
    system, *others = messages
    return [system | {"content": f"{system['content']}\n{shape.as_text}"}, *others]


def _refuses_format(error: Exception) -> bool:
    """Whether another response format may help; a 404 or 501 is about much else, so it has to say so."""
    if not isinstance(error, openai.APIStatusError):
        return False
    if error.status_code in (404, 501):
        return any(word in error.response.content for word in (b"response_format", b"json_schema", b"json_object"))
    return error.status_code in (400, 422)


def _usage(completion: Any) -> dict[str, int]:
    usage = completion.get("usage") if isinstance(completion, dict) else None
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if type(value) is int and 0 <= value < 2**31}


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Seconds of the Retry-After header, given as a number or a date (RFC 9110, 10.2.3); at most an hour."""
    header = error.response.headers.get("Retry-After", "")
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else None
