"""The API's one error shape, for answers that no API view makes."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import status
from rest_framework.exceptions import APIException

API_PREFIX = "/api/"


class Conflict(APIException):
    """What is asked for is refused as things stand."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


def error_response(status: int, code: str, detail: str) -> JsonResponse:
    """An error as every API error reads: `{"type", "errors": [{"code", "detail", "attr"}]}`."""
    kind = "server_error" if status >= 500 else "client_error"
    return JsonResponse({"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}, status=status)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 for addresses that no view has."""
    if request.path.startswith(API_PREFIX):
        return error_response(404, "not_found", "Not found.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """500 outside the API's views."""
    if request.path.startswith(API_PREFIX):
        return error_response(500, "error", "A server error occurred.")
    return defaults.server_error(request)
