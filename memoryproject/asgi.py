"""The web process: an event loop for long-lived connections, and a few threads for everything else.

Django serves ordinary requests in one of `WEB_THREADS` threads; `serving/request_limits.py` assigns them. Streams don't
occupy a thread: the MCP server handles `/mcp`, and the chat endpoint handles paths under `/v1/`. See
docs/decisions/0006-event-loop.md.
"""

import gc
import os
from contextlib import nullcontext
from functools import partial
from typing import IO

import django

gc.set_threshold(10_000)  # the default collects too often: startup and requests create few reference cycles
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")

from django.conf import settings
from django.template.loader import render_to_string
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from memoryproject import telemetry
from memoryproject.database.probe import DatabaseHangs
from memoryproject.serving.fair_shares import Refused
from memoryproject.serving.request_limits import (
    Bridge,
    RequestAbandoned,
    answer_json,
    caller_of,
    read_body,
    refuse,
    refuse_ambiguous,
    refuse_undecodable,
    replay_body,
)
from memoryproject.settings import CONF

telemetry.start("web")  # before the first request
django.setup(set_prefix=False)

# Django must be set up before these imports.
from memoryproject import urls  # noqa: F401 (all pages, before any request)
from memoryproject.serving import schema_view
from memoryproject.serving.anonymous_throttle import AnonymousThrottle
from memoryproject.serving.call_handler import Handlers
from memoryproject.serving.fair_shares import FAIR_SHARES
from memoryproject.serving.observation import with_metrics, with_request_id
from memoryproject.status import checks
from moments_app import engines
from moments_app.interfaces.asgi import count_calls
from moments_app.interfaces.chat.endpoint import application as chat
from moments_app.interfaces.chat.errors import ChatError
from moments_app.interfaces.chat.errors import error_response as chat_error_response
from moments_app.interfaces.chat.rounds import start_replaying
from moments_app.interfaces.mcp.endpoint import PATH, Endpoint
from sessions_app import lexemes
from sessions_app.api.error_pages import API_PREFIX
from sessions_app.database.transactions import Deadline, using_deadline

_in_threads = Bridge(Handlers(), CONF.web_threads)

# Load these now, so that the first request doesn't wait for them.
lexemes.load()
engines.load()
schema_view.generate()
gc.freeze()  # excludes existing objects from collections during requests

CHAT = "/v1/"
_chat, _mcp = count_calls(chat), count_calls(Endpoint())
_anonymous_throttle = AnonymousThrottle()
_readiness = checks.Readiness()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request to the handler of its path. At startup, start the background work of a web process."""
    if scope["type"] == "lifespan":
        start_replaying()  # stores the chat rounds that are still in the spool
        await _mcp(scope, receive, send)
        return
    with with_request_id(scope, send) as send, with_metrics(scope, send) as send:
        await _respond(scope, receive, send)


async def _respond(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope.get("path", "")
    # Django would read X_Forwarded_Proto as X-Forwarded-Proto, which only the proxy may set.
    scope["headers"] = [(name, value) for name, value in scope.get("headers", ()) if b"_" not in name]
    try:
        if path == "/healthz":
            await answer_json(send, 200, {"status": checks.OK})
        elif path == "/readyz":
            status, body = await _readiness.check()
            await answer_json(send, status, body)
        else:
            async with _anonymous_throttle.admit(scope):
                await _serve(scope, receive, send, path)
    except Refused as refused:
        await _refuse(scope, receive, send, refused)
    except DatabaseHangs:
        away = Refused(503, "unavailable", "The database does not respond. Try again in a moment.")
        await _refuse(scope, receive, send, away)
    except RequestAbandoned:
        return


async def _serve(scope: Scope, receive: Receive, send: Send, path: str) -> None:
    refuse_ambiguous(scope["headers"], scope["query_string"])
    refuse_undecodable(scope["raw_path"], scope["query_string"])
    body = await read_body(scope, receive, limit=settings.API_MAX_BODY_BYTES)
    identify = partial(caller_of, dict(scope["headers"]).get(b"authorization", b""))
    # The chat endpoint waits for a model, and has its own time limits.
    in_time = nullcontext() if path.startswith(CHAT) else using_deadline(Deadline(settings.LIMITS.request_seconds))
    with body, in_time:
        async with FAIR_SHARES.admit(identify):
            await _dispatch(scope, body, receive, send)


async def _dispatch(scope: Scope, body: IO[bytes], receive: Receive, send: Send) -> None:
    path = scope.get("path", "")
    if path == PATH:
        await _mcp(scope, replay_body(body, receive), send)
    elif path.startswith(CHAT):
        await _chat(scope, replay_body(body, receive), send)
    else:
        await _in_threads(scope, body, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, refused: Refused) -> None:
    """Send an error in the format of the path: OpenAI's, a page, or the API's."""
    path = scope.get("path", "")
    if path.startswith(CHAT):
        code = "rate_limited" if refused.status == 429 else refused.code
        error = ChatError(refused.status, code, str(refused), refused.headers)
        await chat_error_response(error)(scope, receive, send)
    elif refused.status in (429, 503) and not path.startswith((API_PREFIX, PATH)):
        page = render_to_string("503.html", {"text": str(refused)})
        await HTMLResponse(page, refused.status, refused.headers)(scope, receive, send)
    else:
        await refuse(send, refused)
