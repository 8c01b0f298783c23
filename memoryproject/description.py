"""The OpenAPI description, made once a process, as that takes a second: for keys of a person, and for all others."""

import threading
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from memoryproject.front import KEY_OF_A_PERSON
from sessions_app.api.schema import for_services

_making = threading.Lock()


@require_safe
def description(request: HttpRequest) -> HttpResponse:
    """Answer with the description of the API, as JSON.

    A key of a person need not name that person, others have to; so each gets what is true for it.
    """
    is_a_persons = KEY_OF_A_PERSON.match(request.headers.get("Authorization", "").encode()) is not None
    with _making:  # so that those who ask first wait for one, and don't each make their own
        of_a_person, of_a_service = _made()
    made = of_a_person if is_a_persons else of_a_service
    return HttpResponse(made, content_type=OpenApiJsonRenderer.media_type)


@cache
def _made() -> tuple[bytes, bytes]:
    """Return the description for keys of a person, and the one for those of a service."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    render = OpenApiJsonRenderer().render
    return render(schema, renderer_context={}), render(for_services(schema), renderer_context={})
