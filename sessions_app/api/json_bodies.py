"""JSON in request and response bodies.

The parser is stricter than DRF's. The renderer and the content negotiation work like DRF's, but faster.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pydantic_core import to_json
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

# These characters are valid in JSON. Clients that parse a response as JavaScript treat them as the end of a line.
_LINE_ENDS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ParseError("A number in the JSON is too large.")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ParseError(f"{name} is not valid JSON.")


class StrictJSONParser(BaseParser):
    """Parses JSON as RFC 8259 defines it.

    Rejects NaN, numbers outside the range of a double, and charsets other than UTF-8. JSON that is nested too deeply is
    an error, not a crash.
    """

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        try:
            return json.loads(stream.read().decode(), parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
        except ValueError as error:
            raise ParseError("The body is not valid JSON in UTF-8.") from error


class QuickJSONRenderer(JSONRenderer):
    """DRF's renderer with a faster encoder. Types that this encoder doesn't support are passed to DRF's encoder."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the encoded response. Responses that the client wants indented are rendered by DRF."""
        if data is None or self.get_indent(accepted_media_type or "", renderer_context or {}) is not None:
            return bytes(super().render(data, accepted_media_type, renderer_context))
        written = to_json(data, fallback=self.encoder_class().default)
        for sign, escaped in _LINE_ENDS.items():
            written = written.replace(sign, escaped)
        return written


class QuickNegotiation(DefaultContentNegotiation):
    """DRF's negotiation, with a shortcut for clients that accept any type."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        if format_suffix is None and request.META.get("HTTP_ACCEPT", "*/*") == "*/*":
            first = next(iter(renderers))
            return first, str(first.media_type)
        chosen: tuple[BaseRenderer, str] = super().select_renderer(request, renderers, format_suffix)
        return chosen
