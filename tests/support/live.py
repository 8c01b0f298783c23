"""The whole site on a port of its own, in this process: on the test's database and with the test's settings."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import uvicorn
from django.db import connection

from memoryproject.asgi import application


@contextmanager
def live_site() -> Iterator[str]:
    """Serves until the block ends; yields the base URL. Requests that are being answered are finished.

    Its threads close their connections after each request: they end with the site, and would leave them open.
    """
    config = uvicorn.Config(application, log_level="critical", lifespan="off", timeout_graceful_shutdown=20)
    server = uvicorn.Server(config)
    at_once = patch.dict(connection.settings_dict, CONN_MAX_AGE=0)
    with at_once, socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
