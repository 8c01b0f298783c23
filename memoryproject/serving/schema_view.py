"""The OpenAPI schema, in two versions: one for users' keys, and one for all other clients.

The web server generates both before it forks its processes, so no request waits for a schema.
"""

import hashlib
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_safe
from django.views.decorators.vary import vary_on_headers
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from memoryproject.serving.request_limits import KEY_OF_A_PERSON
from sessions_app.api.schema import for_services


def _tag(request: HttpRequest) -> str:
    return _version_for(request)[1]


@require_safe
@vary_on_headers("Authorization")
@condition(etag_func=_tag)
def schema(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI schema as JSON, or 304 if the client's copy is current.

    There are two versions, because requests with a user's key need not name the person.
    """
    return HttpResponse(_version_for(request)[0], content_type=OpenApiJsonRenderer.media_type)


def _version_for(request: HttpRequest) -> tuple[bytes, str]:
    is_a_persons = KEY_OF_A_PERSON.match(request.headers.get("Authorization", "").encode()) is not None
    return generate()[0 if is_a_persons else 1]


@cache
def generate() -> list[tuple[bytes, str]]:
    """Return the version for users' keys and the one for all other clients, each with its ETag."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    rendered = [OpenApiJsonRenderer().render(one, renderer_context={}) for one in (schema, for_services(schema))]
    return [(one, f'"{hashlib.sha256(one).hexdigest()[:32]}"') for one in rendered]
