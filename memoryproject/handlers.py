"""Django's handler, twice: for pages, and for calls by key, which pass none of what only pages need.

A login, its second factor, forms and messages are a page's. A call has a key in its header and nothing else, so it is
answered the same without asking for these.
"""

from collections.abc import Iterable

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from memoryproject.front import Environ, StartResponse
from sessions_app.api.errors import API_PREFIX


class CallHandler(WSGIHandler):
    """A handler without the middleware of pages."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Load what the settings name, except `MIDDLEWARE_OF_PAGES`; Django reads them only here."""
        named = settings.MIDDLEWARE
        settings.MIDDLEWARE = [name for name in named if name not in settings.MIDDLEWARE_OF_PAGES]
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
