"""Logins of end users. They are not Django's logins, so an end user never becomes an operator.

A started login and a finished login are stored in signed cookies, which only the pages of end users receive. A finished
login also has an empty row in the table of Django's sessions. It ends when this row is deleted, or after
`LOGIN_SECONDS`.
"""

from typing import Any

from django.contrib.sessions.backends.db import SessionStore
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from memory_extras.oauth.conf import current

STARTED, FINISHED = "oauth_started", "oauth_user"  # cookies
LOGIN_SECONDS = 600


def started_in(request: HttpRequest) -> Any:
    return _read(request, STARTED)


def begin(response: HttpResponse, content: Any) -> None:
    _write(response, STARTED, content)


def abandon(response: HttpResponse) -> None:
    _drop(response, STARTED)


def user_id_in(request: HttpRequest) -> str | None:
    """Return the id of the end user who is logged in, or None."""
    login = _read(request, FINISHED)
    return login["user_id"] if login and SessionStore().exists(login["key"]) else None


def finish(response: HttpResponse, user_id: str) -> None:
    SessionStore.clear_expired()
    session = SessionStore()
    session.set_expiry(LOGIN_SECONDS)
    session.create()
    _write(response, FINISHED, {"user_id": user_id, "key": session.session_key})


def end(request: HttpRequest, response: HttpResponse) -> None:
    """Log the end user out. Copies of the cookie become invalid too."""
    if login := _read(request, FINISHED):
        SessionStore().delete(login["key"])
    _drop(response, FINISHED)


def _read(request: HttpRequest, cookie: str) -> Any:
    """Return the content of a signed cookie, or None if it is missing, forged or too old."""
    try:
        return signing.loads(request.COOKIES.get(cookie, ""), salt=cookie, max_age=LOGIN_SECONDS)
    except signing.BadSignature:
        return None


def _write(response: HttpResponse, cookie: str, content: Any) -> None:
    response.set_cookie(
        cookie,
        signing.dumps(content, salt=cookie),
        max_age=LOGIN_SECONDS,
        path=reverse("oauth2_provider:authorize"),
        secure=current().site.startswith("https:"),
        httponly=True,
        samesite="Lax",  # the provider redirects back here
    )


def _drop(response: HttpResponse, cookie: str) -> None:
    response.delete_cookie(cookie, path=reverse("oauth2_provider:authorize"), samesite="Lax")
