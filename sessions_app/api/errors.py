"""The error responses of the API's views. All have the same shape."""

from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.db import OperationalError
from drf_standardized_errors.handler import ExceptionHandler
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.response import Response

from sessions_app.database.transactions import Unavailable
from sessions_app.refusals import Refusal


class _Refused(APIException):
    """A `Refusal` as a DRF exception."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal), refusal.code)
        self.status_code = refusal.status
        self.wait = refusal.retry_after  # becomes the `Retry-After` header


def api_exception(refusal: Refusal) -> APIException:
    if refusal.status == ValidationError.status_code:
        return ValidationError(str(refusal), refusal.code)
    return _Refused(refusal)


class RefusalHandler(ExceptionHandler):
    """Turns refusals and database errors into error responses."""

    def convert_known_exceptions(self, exc: Exception) -> Exception:
        if isinstance(exc, OperationalError):
            exc = Unavailable(exc)
        if isinstance(exc, Refusal):
            return api_exception(exc)
        if isinstance(exc, TooManyFieldsSent):
            return ParseError("The URL has too many query parameters.")
        converted: Exception = super().convert_known_exceptions(exc)
        return converted

    def get_response(self, exc: APIException, data: dict[str, Any]) -> Response:
        """Return the response. Escape lone surrogates from the request, which can't be encoded as UTF-8."""
        for error in data["errors"]:
            error["detail"] = error["detail"].encode(errors="backslashreplace").decode()
        return Response(data, exc.status_code, headers=self.get_headers(exc), content_type="application/json")

    def get_headers(self, exc: APIException) -> dict[str, str]:
        headers: dict[str, str] = super().get_headers(exc)
        if exc.status_code in (429, 503):
            headers.setdefault("Retry-After", "1")
        return headers

    def report_exception(self, exc: APIException, response: Response) -> None:
        """Log server errors with their traceback, except database errors, which `Unavailable` logs in one line."""
        if not isinstance(self.exc, OperationalError):
            super().report_exception(exc, response)
