"""Django's PostgreSQL backend, with the embedded server started on demand."""

from typing import Any

from django.conf import settings

from memoryproject.embedded.server import ensure_running
from memoryproject.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Starts the embedded server, if necessary, before it opens or reuses a connection."""

    def get_connection_params(self) -> dict[str, Any]:
        return super().get_connection_params() | {"host": str(ensure_running(settings.EMBEDDED_DATABASE_DIR))}
