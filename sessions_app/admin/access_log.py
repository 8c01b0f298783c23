"""The access log: whose data was shown to which operator.

Pages and lists that show personal data call `note_reading` with the people. Before the middleware returns the page, it
adds an event for each person, with one statement. If that fails, the page isn't shown.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from django.core.exceptions import FieldDoesNotExist
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from sessions_app.api.error_pages import unavailable
from sessions_app.database.transactions import Unavailable
from sessions_app.models import Event, UserProfile


@dataclass
class Reading:
    """The people whose data a page shows, by primary key."""

    page: str = ""
    people: set[int] = field(default_factory=set)


def people_of(row: Model) -> Collection[int]:
    """Return the primary key of a row's person in a collection, or an empty collection if the row has no person."""
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
    """Record whose data a page shows, for the middleware to log. A later call replaces the name of the page."""
    reading: Reading = request.__dict__.setdefault("reading", Reading())
    reading.page = page
    reading.people.update(people)


class ReadingMiddleware(MiddlewareMixin):
    """Logs the people whose data a page shows, before the page is returned."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        reading: Reading | None = getattr(request, "reading", None)
        if reading is None or not reading.people or response.status_code != 200:
            return response
        try:
            Event.objects.note_reading(
                reading.people, actor=f"operator:{request.user.get_username()}", page=reading.page, address=request.path
            )
        except OperationalError as error:
            return unavailable(request, Unavailable(error))
        return response
