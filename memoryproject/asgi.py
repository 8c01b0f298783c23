"""The web process: Django, and beside it what streams."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
os.environ.setdefault("MEMORY_PROCESS", "web")

from django.core.asgi import get_asgi_application
from starlette.types import Receive, Scope, Send

_django = get_asgi_application()

from moments_app.chat.endpoint import application as _chat


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hands a request to the part that serves its address."""
    app = _chat if scope.get("path", "").startswith("/v1/") else _django
    await app(scope, receive, send)  # type: ignore[arg-type]
