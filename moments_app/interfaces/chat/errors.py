"""Errors of the chat endpoint itself, in the shape that OpenAI's clients read."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse


class ChatError(Exception):
    """What the caller is told.

    Args:
        status: of the answer.
        code: for programs.
        message: for people; quotes nothing of anybody's conversation.
        headers: of the answer.
    """

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers

    @property
    def body(self) -> dict[str, dict[str, str]]:
        """`{"error": {"message", "type", "code"}}`."""
        kind = "api_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "code": self.code}}


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """The error as an answer."""
    assert isinstance(error, ChatError)
    return JSONResponse(error.body, error.status, error.headers)


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Addresses and methods that there are not."""
    assert isinstance(error, HTTPException)
    code = error.detail.lower().replace(" ", "_")
    return JSONResponse(ChatError(error.status_code, code, f"{error.detail}.").body, error.status_code, error.headers)
