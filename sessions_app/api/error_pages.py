"""Error responses outside the API's views: pages for browsers, and errors in the API's shape for clients.

Every command imports this module. It must not import DRF's serializers, because that takes a tenth of a second.
"""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views import defaults

from sessions_app.refusals import Refusal, error_data

API_PREFIX = "/api/"


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
