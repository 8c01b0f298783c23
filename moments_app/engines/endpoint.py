"""Call a model at an OpenAI-compatible endpoint.

The endpoint is not trusted, so the time and size of a call are limited. Errors are reported only by their kind and
status, because a body may quote the request or the key. The caller retries.
"""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar

import httpx2

from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.grounding import DroppedItem
from moments_app.engines.interface import CallRecord, EngineError, Exchange
from moments_app.engines.transport import BoundedTransport, TooLarge
from sessions_app.trace import span

EXCHANGE_MAX_CHARS = 400_000  # maximum characters of a failed call's request, and of its answer, to store
OPENAI_URL = "https://api.openai.com/v1"

# All errors of a call, from a misspelled URL to a text that can't be encoded. Their messages may quote user text or the
# key.
_CALL_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, TooLarge, OSError, ValueError)

# The kinds of errors that are not caused by the text of the request, keyed by status code.
_KINDS = {401: "credential", 403: "credential", 402: "quota", 404: "address", 405: "address", 408: "timeout"}

Read = TypeVar("Read")


class Refused(EngineError):
    """The endpoint rejects an optional part of the request."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model and its endpoint.

    Args:
        base_url: URL of the endpoint. None for OpenAI's own.
        path: The path to call, e.g. `/chat/completions`.
        api_key: May be blank if the endpoint needs none.
        record: Called once for each HTTP call, even if it fails.
        engine: See `CallRecord.engine`. Defaults to the model's name after `openai:`.
    """

    base_url: str | None
    path: str
    api_key: str = field(repr=False)
    model: str
    max_response_bytes: int
    record: Callable[[CallRecord], None]
    engine: str = ""

    @property
    def name(self) -> str:
        return self.engine or f"openai:{self.model}"

    @property
    def address(self) -> tuple[str, str]:
        return self.base_url or OPENAI_URL, self.model

    def call(
        self,
        purpose: str,
        body: dict[str, Any] | None,
        *,
        seconds: float,
        read: Callable[[Any], Read],
        refuses: Callable[[httpx2.Response], bool],
        counts: Callable[[Read], tuple[int, Sequence[DroppedItem]]] = lambda _: (0, ()),
    ) -> Read:
        """Make one HTTP call, and record it even if it fails.

        Args:
            purpose: The recorded purpose.
            body: The body of the request, without the model. None for a GET request.
            seconds: Timeout of the whole call, however slowly the answer arrives.
            read: Returns the content of the endpoint's JSON, or raises `InvalidAnswer`. The JSON is not trusted.
            refuses: Returns whether an error response rejects an optional part of `body`.
            counts: Returns how many parts of an answer were kept, and the parts that were dropped.

        Raises:
            Refused: `refuses` returned true.
            InvalidAnswer: The answer is not JSON, or `read` raised this.
            EngineError: There was no answer.
        """
        self._check_key()
        started = time.monotonic()
        usage: dict[str, int] = {}
        kept: int = 0
        left_out: Sequence[DroppedItem] = ()
        answered = b""
        broken_off = EngineError("unavailable", f"The call of {self.name} was aborted.")
        failure: EngineError | None = broken_off
        try:
            answered = self._send(body, seconds)
            answer = _parsed(answered)
            usage = _usage(answer)
            result = read(answer)
            kept, left_out = counts(result)
            failure = None
            return result
        except InvalidAnswer as error:
            failure = self.invalid(error)
            raise
        except _CALL_ERRORS as error:
            failure = self._engine_error(error, seconds)
            if isinstance(error, httpx2.HTTPStatusError) and refuses(error.response):
                raise Refused(failure.kind, str(failure)) from None
            raise failure from None
        finally:
            record = self._record_of(purpose, started, usage, failure)
            exchange = _exchange(body, answered) if failure else None
            is_aborted = failure is broken_off
            self.record(replace(record, is_aborted=is_aborted, kept=kept, left_out=left_out, exchange=exchange))

    def invalid(self, error: InvalidAnswer) -> EngineError:
        return EngineError("invalid_answer", f"{self.name} gave no valid answer: {error.summary}")

    @property
    def _key(self) -> str:
        return self.api_key.strip()  # keys read from files end with a line break

    def _check_key(self) -> None:
        # Reject an invalid key here, because later errors and logs would quote it.
        if not (self._key.isascii() and self._key.isprintable()):
            raise EngineError(
                "credential",
                f"{self.name} can't be called: the API key has characters that are not allowed in an HTTP header.",
            )

    def _send(self, body: dict[str, Any] | None, seconds: float) -> bytes:
        request = httpx2.Request(
            "GET" if body is None else "POST",
            _url((self.base_url or OPENAI_URL).rstrip("/") + self.path),
            headers={"User-Agent": "memory-platform"},
            json=None if body is None else {"model": self.model} | body,
        )
        request.headers["Authorization"] = self._authorization(request.url)
        # Each call has its own transport, so no transport is shared by threads or inherited by a fork. There is no
        # `Client`, because its handling of redirects and cookies would take as much CPU time as the call.
        with (
            span(f"model call {self.path}", **{"gen_ai.request.model": self.model}),
            BoundedTransport(timeout=seconds, max_bytes=self.max_response_bytes) as transport,
        ):
            response = transport.handle_request(request)
            response.request = request
            response.read()
            return response.raise_for_status().content

    def _authorization(self, url: httpx2.URL) -> str:
        if url.userinfo:  # a login in the URL takes precedence over the key
            login = f"{url.username}:{url.password}"
            return f"Basic {b64encode(login.encode()).decode()}"
        return f"Bearer {self._key or 'none'}"

    def _engine_error(self, error: Exception, seconds: float) -> EngineError:
        """Convert an exception to an `EngineError` with its kind and status, but without its text."""
        if isinstance(error, TooLarge):
            return EngineError(
                "too_large", f"{self.name} sent an answer of more than {self.max_response_bytes:,} bytes."
            )
        if isinstance(error, httpx2.TimeoutException):
            return EngineError("timeout", f"{self.name} did not answer within {round(seconds, 2):g} s.")
        if not isinstance(error, httpx2.HTTPStatusError):
            return EngineError("unavailable", f"{self.name} can't be reached ({type(error).__name__}).")
        wait = _retry_after(error.response)
        kind = _kind_of(error.response)
        if kind == "rate_limited":
            return EngineError(kind, f"{self.name} is rate limited.", retry_after=wait)
        return EngineError(kind, f"{self.name} answered with status {error.response.status_code}.", retry_after=wait)

    def _record_of(
        self, purpose: str, started: float, usage: dict[str, int], failure: EngineError | None
    ) -> CallRecord:
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


@lru_cache(maxsize=16)  # parsing takes half of the time to create a request
def _url(text: str) -> httpx2.URL:
    return httpx2.URL(text)


def _parsed(answered: bytes) -> Any:
    try:
        return json.loads(answered)
    except (ValueError, RecursionError):
        raise InvalidAnswer("", "it is not JSON.") from None


def _exchange(body: dict[str, Any] | None, answered: bytes) -> Exchange:
    """Return the request and the answer to store. An error response is left out, because it may quote the key."""
    asked = json.dumps(body, ensure_ascii=False, indent=1)
    return Exchange(asked[:EXCHANGE_MAX_CHARS], answered.decode(errors="replace")[:EXCHANGE_MAX_CHARS])


def _kind_of(response: httpx2.Response) -> str:
    status = response.status_code
    if status == 429:
        return "quota" if b'"insufficient_quota"' in response.content else "rate_limited"
    return "server_error" if status >= 500 else _KINDS.get(status, "rejected")


def _usage(answer: Any) -> dict[str, int]:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if type(value) is int and 0 <= value < 2**31}


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of the Retry-After header, a number or a date (RFC 9110, 10.2.3), but at most an hour."""
    header = response.headers.get("Retry-After", "")
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else None
