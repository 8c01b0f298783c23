"""The web process: an event loop for what may stay open long, and a few threads for everything else.

A request that asks the database a few things and answers is served by Django in one of `WEB_THREADS` threads. A stream
holds none: `/mcp` is the MCP server's, addresses under `/v1/` are the chat endpoint's. See docs/decisions/0011.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")

from a2wsgi import WSGIMiddleware
from django.core.wsgi import get_wsgi_application
from starlette.types import Receive, Scope, Send

from memoryproject.settings import CONF

# Its types ask for more than Django's tell.
_in_threads = WSGIMiddleware(get_wsgi_application(), workers=CONF.web_threads)  # type: ignore[arg-type]

# Only now: they need Django to be set up.
from moments_app.interfaces.chat.endpoint import application as _chat
from moments_app.interfaces.mcp.endpoint import PATH, Endpoint
from sessions_app import lexemes

lexemes.load()  # half a second that no request has to wait

_mcp = Endpoint()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hands a request to the part that serves its address; the MCP server alone has something to start and to end."""
    path = scope.get("path", "")
    # Django reads X_Forwarded_Proto as X-Forwarded-Proto, which is the proxy's to set.
    scope["headers"] = [(name, value) for name, value in scope.get("headers", ()) if b"_" not in name]
    if scope["type"] == "lifespan" or path == PATH:
        await _mcp(scope, receive, send)
    elif path.startswith("/v1/"):
        await _chat(scope, receive, send)
    else:
        await _in_threads(scope, receive, send)  # type: ignore[arg-type]
