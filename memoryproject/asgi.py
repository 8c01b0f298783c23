"""The web process: an event loop for connections that may stay open long, and a few threads for everything else.

Django serves requests with short answers in one of `WEB_THREADS` threads. A stream occupies no thread: the MCP server
handles `/mcp`, and the chat endpoint handles addresses under `/v1/`. See docs/decisions/0011.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")

from a2wsgi import WSGIMiddleware
from django.core.wsgi import get_wsgi_application
from starlette.types import Receive, Scope, Send

from memoryproject.settings import CONF

# The ignored type is a2wsgi's, which asks for more than Django's types promise.
_in_threads = WSGIMiddleware(get_wsgi_application(), workers=CONF.web_threads)  # type: ignore[arg-type]

# Imported only now, because they need Django to be set up.
from moments_app.interfaces.chat.endpoint import application as _chat
from moments_app.interfaces.mcp.endpoint import PATH, Endpoint
from sessions_app import lexemes

lexemes.load()  # takes half a second, which no request then has to wait

_mcp = Endpoint()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request to the part that serves its address. Lifespan events go to the MCP server, the only user."""
    path = scope.get("path", "")
    # Django would read X_Forwarded_Proto as X-Forwarded-Proto, which only the proxy may set.
    scope["headers"] = [(name, value) for name, value in scope.get("headers", ()) if b"_" not in name]
    if scope["type"] == "lifespan" or path == PATH:
        await _mcp(scope, receive, send)
    elif path.startswith("/v1/"):
        await _chat(scope, receive, send)
    else:
        await _in_threads(scope, receive, send)  # type: ignore[arg-type]
