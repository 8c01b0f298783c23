"""Who reads whom: each page of an operator that tells of people is an event in the log, and stands on their pages.

Pages and lists name the people whom they tell of. The middleware writes all of them down by one statement, before the
page goes out: what can't be put on record isn't shown.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from django.core.exceptions import FieldDoesNotExist
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from sessions_app.api.errors import unavailable
from sessions_app.limits import Unavailable
from sessions_app.models import Event, UserProfile


@dataclass
class Reading:
    """What a page tells.

    Args:
        page: the name of the page.
        people: primary keys of those whom it tells of.
    """

    page: str = ""
    people: set[int] = field(default_factory=set)


def people_of(row: Model) -> Collection[int]:
    """Return the primary key of the person to whom a row belongs; nothing for rows of nobody."""
    if isinstance(row, UserProfile):
        return (row.pk,)
    person = row.user_pk if isinstance(row, Event) else _person_of(row)
    return () if person is None else (person,)


def _person_of(row: Model) -> int | None:
    try:
        column = row._meta.get_field("user")
    except FieldDoesNotExist:
        return None
    return getattr(row, "user_id", None) if column.related_model is UserProfile else None


def note_reading(request: HttpRequest, page: str, people: Iterable[int]) -> None:
    """Note for the middleware whom a page tells of; a form within a page is that page."""
    reading: Reading = request.__dict__.setdefault("reading", Reading())
    reading.page = page
    reading.people.update(people)


class ReadingMiddleware:
    """Writes down who was read, for the pages that were shown."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        reading: Reading | None = getattr(request, "reading", None)
        if reading is None or not reading.people or answer.status_code != 200:
            return answer
        try:
            Event.objects.note_reading(
                reading.people, actor=f"operator:{request.user.get_username()}", page=reading.page, address=request.path
            )
        except OperationalError as error:
            return unavailable(request, Unavailable(error))
        return answer
