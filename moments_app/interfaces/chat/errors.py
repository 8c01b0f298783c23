"""The chat endpoint's own errors, in the format of OpenAI's API, and a counter of failures."""

from django.db import OperationalError
from prometheus_client import Counter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from sessions_app.database.transactions import Unavailable
from sessions_app.refusals import Refusal

FAILURES = Counter(
    "memory_chat_failures", "Chat calls that ran without memory, were not spooled, or were not stored.", ["what"]
)


class ChatError(Refusal):
    """An error of the chat endpoint. The message must not quote the conversation."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def error_body(refusal: Refusal) -> dict[str, dict[str, str]]:
    """Return `{"error": {"message", "type", "code"}}`."""
    kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
    return {"error": {"message": str(refusal), "type": kind, "code": refusal.code}}


def error_response(refusal: Refusal) -> JSONResponse:
    headers = refusal.headers or {} if isinstance(refusal, ChatError) else {}
    if refusal.retry_after is not None:
        headers = {"Retry-After": str(refusal.retry_after)} | headers
    return JSONResponse(error_body(refusal), refusal.status, headers)


async def answer_refusal(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, OperationalError):
        error = Unavailable(error)
    assert isinstance(error, Refusal)
    return error_response(error)


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = error.detail.lower().replace(" ", "_")
    body = error_body(ChatError(error.status_code, code, f"{error.detail}."))
    return JSONResponse(body, error.status_code, error.headers)
