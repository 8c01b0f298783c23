"""The OpenAPI description, made once a process: it is the same for everybody, and takes a second to make."""

import threading
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

_making = threading.Lock()


@require_safe
def description(request: HttpRequest) -> HttpResponse:
    """Answer with the description of the API, as JSON."""
    with _making:  # so that those who ask first wait for one, and don't each make their own
        made = _made()
    return HttpResponse(made, content_type=OpenApiJsonRenderer.media_type)


@cache
def _made() -> bytes:
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return OpenApiJsonRenderer().render(schema, renderer_context={})
