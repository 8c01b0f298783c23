"""Every page of the admin, found by iterating over its URLs, so new pages are included automatically."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, reverse

from drill.trust.operator_pages import named_patterns
from moments_app.models import MemoryAtom
from sessions_app.models import Session, UserProfile
from sessions_app.security.staff import invitation_token

# The values of URL arguments other than the model's primary key: a text, a function that returns one, or a model, whose
# first row is used. If a new page has another argument, add it here.
ARGUMENTS: dict[str, str | type[Model] | Callable[[], str]] = {
    "app_label": "moments_app",
    "candidate": lambda: str(MemoryAtom.objects.active().candidates().values_list("pk", flat=True)[0]),
    "kind": "observation",
    "number": "1",
    "session_pk": Session,
    "test_person": lambda: str(UserProfile.objects.get(is_test=True).pk),
    "trial": lambda: str(apps.get_model("lab", "prompttrial")._base_manager.earliest("pk").pk),
    "token": lambda: invitation_token(User.objects.filter(password__startswith="!").earliest("pk")),
    "user_pk": UserProfile,
}
NOT_OURS = {"view_on_site", "autocomplete"}  # redirects elsewhere; returns JSON to form fields


@dataclass(frozen=True)
class Address:
    """A URL of the admin for the first row of its model.

    Args:
        name: The name for `reverse`, without `admin:`.
        url: The URL.
    """

    name: str
    url: str


def every_address() -> list[Address]:
    """Return all URLs, whatever their responses."""
    admin.autodiscover()
    found = [
        Address(str(pattern.name), reverse(f"admin:{pattern.name}", kwargs=_arguments(route, pattern)))
        for route, pattern in named_patterns(admin.site.get_urls())
        if pattern.name not in NOT_OURS
    ]
    return sorted(set(found), key=lambda address: address.url)


def every_page(client: Client, *, with_parts: bool = False) -> Iterator[tuple[Address, str]]:
    """Yield the URLs that return a page to the client, with the HTML.

    Args:
        client: Requests each page when the caller iterates to it.
        with_parts: Also yield parts of pages, which scripts load.

    Raises:
        AssertionError: A URL returns an error other than 403 or 405.
    """
    for address in every_address():
        html = _html(client, address)
        if "<html" in html or (html and with_parts):
            yield address, html


def _html(client: Client, address: Address) -> str:
    """Return the HTML at a URL, or a blank string if there is none."""
    answer: Any = client.get(address.url)
    assert answer.status_code in (200, 302, 403, 405), f"{address}: {answer.status_code}"
    is_html = answer.headers.get("Content-Type", "").startswith("text/html")
    answer.close()
    return answer.content.decode() if answer.status_code == 200 and is_html else ""


def _arguments(route: str, pattern: URLPattern) -> dict[str, str]:
    names = list(pattern.pattern.regex.groupindex)
    return {name: _argument(route, name) for name in names}


def _argument(route: str, name: str) -> str:
    app_label, model_name, *_rest = route.split("/")
    is_own = name in ("pk", "id", "object_id")
    value = apps.get_model(app_label, model_name) if is_own else ARGUMENTS[name]
    if isinstance(value, str):
        return value
    if not isinstance(value, type):
        return value()
    row = cast(type[Model], value)._default_manager.order_by("pk").first()
    assert row, f"furnish() creates no {value.__name__}"
    return str(row.pk)
