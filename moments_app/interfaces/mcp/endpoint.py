"""The endpoint `/mcp`, with the same checks as the REST API.

The REST API's classes check the key, the rate and the scope, and errors have the same form. A user's key determines
the person. A service key names the person in `X-User-Id`.
"""

import asyncio

from anyio import to_thread
from django.conf import settings
from django.db import OperationalError
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.views import APIView
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from memoryproject.database.probe import PROBE
from memoryproject.serving.request_limits import RESERVED_THREADS
from memoryproject.settings import CONF
from moments_app.interfaces.asgi import check_request
from moments_app.interfaces.mcp.connection import CURRENT, Connection, database_work, in_mcp_thread
from moments_app.interfaces.mcp.server import server
from sessions_app.api.fields import PublicIdField, StrictSerializer
from sessions_app.api.permissions import key_of, user_id_of
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.refusals import Refusal, error_data

PATH = "/mcp"


class ConnectionHeaders(StrictSerializer):
    """The person that a service key acts for, and the calling assistant."""

    user_id = PublicIdField(required=False, help_text="X-User-Id")
    agent_id = PublicIdField(default=DEFAULT_AGENT, help_text="X-Agent-Id")


class _RequestChecks(APIView):
    """The checks of the REST API before each call. Tools that write check the write scope themselves."""

    scopes = {"POST": "read", "DELETE": "read"}


class Endpoint:
    def __init__(self) -> None:
        # Disable the SDK's check of host names, which doesn't support patterns. `check_request` checks them.
        self._sdk_application: ASGIApp = server.streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=True,
            max_request_body_size=settings.API_MAX_BODY_BYTES,
            host="",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it to the SDK. Pass events of other types, such as startup, unchanged."""
        # Use as many threads as the API, so that both fit into the pool of database connections.
        to_thread.current_default_thread_limiter().total_tokens = CONF.web_threads + RESERVED_THREADS
        app = self._sdk_application
        if scope["type"] == "http":
            PROBE.check()
            connecting = asyncio.ensure_future(in_mcp_thread(_connect, scope))
            result = await PROBE.result(connecting, lambda: True)
            if isinstance(result, Connection):
                CURRENT.set(result)
            else:
                app = result
        await app(scope, receive, send)


@database_work
def _connect(scope: Scope) -> Connection | JSONResponse:
    """Return the client's connection, or an error response."""
    view = _RequestChecks()
    try:
        http = check_request(scope)
    except Refusal as refusal:
        return JSONResponse(error_data(refusal.status, refusal.code, str(refusal)), refusal.status)
    view.setup(http)
    view.request = request = view.initialize_request(http)
    try:
        view.perform_authentication(request)
        view.check_permissions(request)
        view.check_throttles(request)
        return _connection_of(request)
    except (APIException, OperationalError, Refusal) as error:
        answer = view.handle_exception(error)
        headers = {name: answer[name] for name in ("Retry-After", "WWW-Authenticate") if name in answer}
        return JSONResponse(answer.data, answer.status_code, headers)


def _connection_of(request: Request) -> Connection:
    names = {"user_id": "X-User-Id", "agent_id": "X-Agent-Id"}
    given = {
        field: _text_of(request.headers[header], field, header)
        for field, header in names.items()
        if header in request.headers
    }
    values = ConnectionHeaders.validated(given)
    key = key_of(request)
    if key.user is None and "user_id" not in values:
        raise ValidationError({"user_id": "Send X-User-Id. A service key must name the user."}, code="required")
    user_id = user_id_of(request, values.get("user_id"))
    return Connection(user_id, values["agent_id"], key.actor, key.scope, key.application_id)


def _text_of(value: str, field: str, header: str) -> str:
    """Decode a header. Django decodes headers as Latin-1, but clients send ids as UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise ValidationError({field: f"{header} is not UTF-8."}, code="not_utf8") from None
