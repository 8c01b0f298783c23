"""Every admin page about one person, opened by an operator of another application. Runs in the site's process."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from moments_app.models import MemoryAtom
from sessions_app.models import Application, LoginLimit, Session, UserProfile
from sessions_app.people.provenance import declared

MAX_ROWS = 3  # rows of a table to try
NAMED = ("q", "user_id", "query")  # query parameters of pages
ROWS_OF: dict[str, type[Model]] = {
    "candidate": MemoryAtom,
    "session_pk": Session,
    "user_pk": UserProfile,
}
TEXTS = {"app_label": "moments_app", "kind": "observation", "number": "1"}
LEFT_OUT = {"view_on_site", "autocomplete", "logout"}


def probe(person: str, of: str, operates_in: str, word: str, topic: str) -> None:
    """Print as JSON the number of opened pages, and which of them contain the word.

    Args:
        person, of: The person, and the person's application.
        operates_in: The application that the operator is limited to.
        word: A word in all texts of the person.
        topic: The search query.
    """
    user = UserProfile.objects.get(user_id=person, application__name=of)
    admin.autodiscover()
    patterns = [(route, one) for route, one in named_patterns(admin.site.get_urls()) if one.name not in LEFT_OUT]
    addresses = [url for route, one in patterns for url in _addresses(route, one, user)]
    plain = [reverse(f"admin:{one.name}") for _, one in patterns if not one.pattern.regex.groupindex]
    asked = [f"{url}?{urlencode({name: text})}" for url in plain for name in NAMED for text in (person, topic)]
    client = _operator(Application.objects.get(name=operates_in))
    leaks = [url for url in [*addresses, *asked] if word in _answered(client, url)]
    json.dump({"probes": len(addresses) + len(asked), "leaks": leaks}, sys.stdout)


def _operator(application: Application) -> Client:
    login = User.objects.create_user("limited", is_staff=True)
    login.user_permissions.set(Permission.objects.all())
    LoginLimit.objects.create(login=login, application=application)
    client = Client(HTTP_HOST="localhost")
    client.force_login(login, "django.contrib.auth.backends.ModelBackend")
    return client


def _answered(client: Client, url: str) -> str:
    answer: Any = client.get(url)
    data: bytes = b"".join(answer) if answer.streaming else answer.content
    return data.decode(errors="replace")


def named_patterns(patterns: Iterable[URLPattern | URLResolver], before: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield the named patterns below these, each with its whole route."""
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from named_patterns(pattern.url_patterns, route)
        elif pattern.name:  # Django's redirects of old URLs have no name
            yield route, pattern


def _addresses(route: str, pattern: URLPattern, user: UserProfile) -> Iterator[str]:
    """Yield the URLs of a page for the rows of a person."""
    names = list(pattern.pattern.regex.groupindex)
    for values in product(*(_values(route, name, user) for name in names)):
        yield reverse(f"admin:{pattern.name}", kwargs=dict(zip(names, values, strict=True)))


def _values(route: str, name: str, user: UserProfile) -> list[str]:
    if name in TEXTS:
        return [TEXTS[name]]
    app_label, model_name, *_ = route.split("/")
    model = ROWS_OF.get(name) or apps.get_model(app_label, model_name)
    owned = {one.model: one.rows(user) for one in declared()} | {UserProfile: UserProfile.objects.filter(pk=user.pk)}
    rows = owned.get(model, model._default_manager.all()).order_by("-pk")
    return [str(pk) for pk in rows.values_list("pk", flat=True)[:MAX_ROWS]]
