"""The backend: Django's PostgreSQL backend, with the server started on demand."""

from typing import Any

from django.conf import settings
from django.db.backends.postgresql import base

from memoryproject.embedded.server import ensure_running


class DatabaseWrapper(base.DatabaseWrapper):
    """A backend that makes sure the embedded server runs before a connection is opened or taken from the pool."""

    def get_connection_params(self) -> dict[str, Any]:
        return super().get_connection_params() | {"host": str(ensure_running(settings.EMBEDDED_DATABASE_DIR))}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        ensure_running(settings.EMBEDDED_DATABASE_DIR)
        return super().get_new_connection(conn_params)
