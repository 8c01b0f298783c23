"""What a call may fail with."""

from typing import Any

import httpx2


class MemoryPlatformError(Exception):
    """A call came to nothing."""


class Unreachable(MemoryPlatformError):
    """No answer came, however often it was asked; the message says why. The call may have been carried out."""


class CannotStart(MemoryPlatformError):
    """The embedded site did not start. The message says why."""


class Refused(MemoryPlatformError):
    """The platform refused the call.

    Args:
        status: of the answer.
        errors: each with its `code`, `detail`, and the field that it is about as `attr`.
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
        """Return what an answer says; one that is not the platform's, of a proxy say, by its status alone."""
        try:
            errors = [{"code": "error", "detail": "", "attr": None} | error for error in response.json()["errors"]]
        except (ValueError, KeyError, TypeError):
            errors = []
        return cls(
            response.status_code, errors or [{"code": "error", "detail": "no error of the platform", "attr": None}]
        )
