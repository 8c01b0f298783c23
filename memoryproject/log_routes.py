"""Logs name the route of a request, not its path: in that stand the ids of people."""

import logging

from django.http import HttpRequest
from django.urls import Resolver404, resolve

UNKNOWN = "an unknown address"


class RoutesOnly(logging.Filter):
    """Puts the route in the place of the path wherever Django tells of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record, and let it pass."""
        request = getattr(record, "request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            escaped = request.path.encode("unicode_escape").decode("ascii")  # as Django writes it
            paths = (request.path, escaped, request.get_full_path())
            record.args = tuple(_route(request) if argument in paths else argument for argument in record.args)
        return True


def _route(request: HttpRequest) -> str:
    try:
        return f"/{resolve(request.path_info).route}"
    except Resolver404:
        return UNKNOWN
