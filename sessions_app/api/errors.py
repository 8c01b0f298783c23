"""The error responses of the API. All have the same shape."""

from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views import defaults
from drf_standardized_errors.handler import ExceptionHandler
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.response import Response

from sessions_app.database.transactions import Unavailable
from sessions_app.refusals import Refusal, error_data

API_PREFIX = "/api/"


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


def error_response(status: int, code: str, detail: str) -> JsonResponse:
    return JsonResponse(error_data(status, code, detail), status=status)


def unavailable(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """Return 503: a page for browsers, an API error for clients."""
    if request.path.startswith(API_PREFIX):
        answer: HttpResponse = error_response(refusal.status, refusal.code, str(refusal))
    else:
        answer = render(request, "503.html", {"text": str(refusal)}, status=refusal.status)
    answer["Retry-After"] = str(refusal.retry_after)
    return answer


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 400 for requests that Django rejects before the view, such as those for an unknown host."""
    if request.path.startswith(API_PREFIX):
        return error_response(
            400, "bad_request", "This host is not served here. Check the Host header and ALLOWED_HOSTS."
        )
    return defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith(API_PREFIX):
        return error_response(404, "not_found", "Not found.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return 500 for errors outside the API's views."""
    if request.path.startswith(API_PREFIX):
        return error_response(500, "error", "A server error occurred. It has been logged.")
    return defaults.server_error(request)
