"""Django's handler, twice: for pages, and for calls by key, which pass none of what only pages need.

A login, its second factor, forms and messages are a page's. A call has a key in its header and nothing else, so it is
answered the same without asking for these.
"""

from collections.abc import Iterable

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from memoryproject.front import Environ, StartResponse
from sessions_app.api.errors import API_PREFIX

OF_PAGES = (
    "memoryproject.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "memoryproject.logins.ProvenLoginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
    "memoryproject.logins.LoginMiddleware",
    "sessions_app.admin.reading.ReadingMiddleware",
    "sessions_app.replica.ReplicaMiddleware",
    "memoryproject.logins.LimitedOperatorMiddleware",
)


class CallHandler(WSGIHandler):
    """A handler without the middleware of pages."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Load what the settings name, but for `OF_PAGES`; Django reads them here and nowhere else."""
        named = settings.MIDDLEWARE
        settings.MIDDLEWARE = [name for name in named if name not in OF_PAGES]
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = named


class Handlers:
    """The WSGI application: each request goes to the handler that is for it."""

    def __init__(self) -> None:
        self._pages, self._calls = WSGIHandler(), CallHandler()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        is_call = environ["PATH_INFO"].startswith(API_PREFIX) and "HTTP_AUTHORIZATION" in environ
        return (self._calls if is_call else self._pages)(environ, start_response)
