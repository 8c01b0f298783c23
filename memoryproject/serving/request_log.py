"""Log routes instead of paths, because paths contain people's ids. Log a denied page in one line."""

import logging

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import Resolver404, resolve

UNKNOWN = "an unknown address"


class RoutesOnly(logging.Filter):
    """Replaces the path with the route in Django's log messages about requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            escaped = request.path.encode("unicode_escape").decode("ascii")  # like Django's log messages
            paths = (request.path, escaped, request.get_full_path())
            record.args = tuple(_route(request) if argument in paths else argument for argument in record.args)
            if record.exc_info and isinstance(record.exc_info[1], PermissionDenied):
                _tell_who(record, request)
        return True


def _tell_who(record: logging.LogRecord, request: HttpRequest) -> None:
    user = getattr(request, "user", None)
    who = f"operator:{user.get_username()}" if user and user.is_authenticated else "nobody who is logged in"
    assert isinstance(record.args, tuple)
    record.msg, record.args = f"{record.msg} to %s", (*record.args, who)
    record.exc_info = record.exc_text = None


def _route(request: HttpRequest) -> str:
    try:
        return f"/{resolve(request.path_info).route}"
    except Resolver404:
        return UNKNOWN
