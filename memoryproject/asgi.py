"""The web process: Django, and beside it what streams."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
os.environ.setdefault("MEMORY_PROCESS", "web")

from django.core.asgi import get_asgi_application
from starlette.applications import Starlette
from starlette.routing import Mount

django = get_asgi_application()

from moments_app.chat.endpoint import routes
from moments_app.chat.errors import ChatError, answer_error

application = Starlette(
    routes=[*routes, Mount("/", django)],  # type: ignore[arg-type]
    exception_handlers={ChatError: answer_error},
)
