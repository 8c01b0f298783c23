"""The OpenAPI description, for keys of a person, and for all others.

Generating it takes a second, so the web server does it once, before it forks its processes.
"""

import hashlib
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_safe
from django.views.decorators.vary import vary_on_headers
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from memoryproject.front import KEY_OF_A_PERSON
from sessions_app.api.schema import for_services


def _tag(request: HttpRequest) -> str:
    return _made_for(request)[1]


@require_safe
@vary_on_headers("Authorization")
@condition(etag_func=_tag)
def description(request: HttpRequest) -> HttpResponse:
    """Answer with the description of the API, as JSON; with 304 to whoever has it.

    A key of a person need not name that person, others have to; so each gets what is true for it.
    """
    return HttpResponse(_made_for(request)[0], content_type=OpenApiJsonRenderer.media_type)


def _made_for(request: HttpRequest) -> tuple[bytes, str]:
    """Return the description for whoever asks, and its tag."""
    is_a_persons = KEY_OF_A_PERSON.match(request.headers.get("Authorization", "").encode()) is not None
    return make()[0 if is_a_persons else 1]


@cache
def make() -> list[tuple[bytes, str]]:
    """Return the description for keys of a person, and the one for all others, each with its tag."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    made = [OpenApiJsonRenderer().render(one, renderer_context={}) for one in (schema, for_services(schema))]
    return [(one, f'"{hashlib.sha256(one).hexdigest()[:32]}"') for one in made]
