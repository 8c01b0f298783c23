"""The OpenAPI description, made once a process: it is the same for everybody, and takes a second to make."""

import hashlib
import threading
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

_making = threading.Lock()


def _tag(_request: HttpRequest) -> str:
    return _made()[1]


@require_safe
@condition(etag_func=_tag)
def description(request: HttpRequest) -> HttpResponse:
    """Answer with the description of the API, as JSON; with 304 to whoever has it."""
    return HttpResponse(_made()[0], content_type=OpenApiJsonRenderer.media_type)


def _made() -> tuple[bytes, str]:
    """Return the description and its tag."""
    with _making:  # so that those who ask first wait for one, and don't each make their own
        return _make()


@cache
def _make() -> tuple[bytes, str]:
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    made = OpenApiJsonRenderer().render(schema, renderer_context={})
    return made, f'"{hashlib.sha256(made).hexdigest()[:32]}"'
