"""Errors of calls."""

from typing import Any

import httpx2


class MemoryPlatformError(Exception):
    """A call failed."""


class Unreachable(MemoryPlatformError):
    """No attempt got a response. The message says why. The platform may have executed the call."""


class CannotStart(MemoryPlatformError):
    """The embedded site did not start. The message says why."""


class Refused(MemoryPlatformError):
    """The platform rejected the call.

    Args:
        status: The status of the response.
        errors: Each has a `code`, a `detail`, and its field as `attr`.
    """

    def __init__(self, status: int, errors: list[dict[str, Any]]) -> None:
        told = "; ".join(
            f"{error['attr']}: {error['detail']}" if error["attr"] else error["detail"] for error in errors
        )
        super().__init__(f"{status}: {told}")
        self.status, self.errors = status, errors

    @property
    def code(self) -> str:
        """The code of the first error, such as `not_found`."""
        return str(self.errors[0]["code"])

    @classmethod
    def by(cls, response: httpx2.Response) -> "Refused":
        """Return the error in a response. A response of a proxy has only its status."""
        try:
            errors = [{"code": "error", "detail": "", "attr": None} | error for error in response.json()["errors"]]
        except (ValueError, KeyError, TypeError):
            errors = []
        return cls(response.status_code, errors or [{"code": "error", "detail": "no error details", "attr": None}])
