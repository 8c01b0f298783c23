"""Rejections of requests before they reach Django, MCP or the chat endpoint."""


class Refused(Exception):
    """The request is rejected.

    Args:
        retry_after: The number of seconds after which the client may retry, with 429 and 503.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.status, self.code, self._retry_after = status, code, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response. Closing the connection discards an unread body."""
        retry = {"Retry-After": str(self._retry_after)} if self.status in (429, 503) else {}
        return retry if self.status == 503 else {"Connection": "close"} | retry
