"""The API's one error shape, whoever finds that a request can't be answered."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from drf_standardized_errors.handler import ExceptionHandler
from rest_framework.exceptions import APIException, ValidationError

from sessions_app.refusals import Refusal

API_PREFIX = "/api/"


def api_exception(refusal: Refusal) -> APIException:
    """Return a refusal as the REST interface raises it."""
    if refusal.status == ValidationError.status_code:
        return ValidationError(str(refusal), refusal.code)
    exception = APIException(str(refusal), refusal.code)
    exception.status_code = refusal.status
    return exception


class RefusalHandler(ExceptionHandler):
    """Answers refusals as errors."""

    def convert_known_exceptions(self, exc: Exception) -> Exception:
        if isinstance(exc, Refusal):
            return api_exception(exc)
        converted: Exception = super().convert_known_exceptions(exc)
        return converted


def error_data(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return an error as every API error reads: `{"type", "errors": [{"code", "detail", "attr"}]}`."""
    kind = "server_error" if status >= 500 else "client_error"
    return {"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}


def error_response(status: int, code: str, detail: str) -> JsonResponse:
    """Return an answer with such an error."""
    return JsonResponse(error_data(status, code, detail), status=status)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404 for addresses that no view has."""
    if request.path.startswith(API_PREFIX):
        return error_response(404, "not_found", "Not found.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500 outside the API's views."""
    if request.path.startswith(API_PREFIX):
        return error_response(500, "error", "A server error occurred.")
    return defaults.server_error(request)
