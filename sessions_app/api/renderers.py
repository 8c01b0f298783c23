"""JSON rendering and content negotiation. They do what DRF does, but faster."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

# Valid in JSON, but a line end for clients that parse a response as JavaScript.
_LINE_ENDS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


class QuickJSONRenderer(JSONRenderer):
    """DRF's renderer with a faster encoder. It leaves types that it doesn't know to DRF's encoder."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the encoded response. If the client wants it indented, DRF renders it."""
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
        """Return the view's first renderer and its media type, unless the client prefers another type."""
        if format_suffix is None and request.META.get("HTTP_ACCEPT", "*/*") == "*/*":
            first = next(iter(renderers))
            return first, str(first.media_type)
        chosen: tuple[BaseRenderer, str] = super().select_renderer(request, renderers, format_suffix)
        return chosen
