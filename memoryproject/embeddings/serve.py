"""The process of the embeddings server. It loads the model before it listens."""

import signal
import socket
import sys
from pathlib import Path

import uvicorn

from memoryproject.embeddings import address, served
from memoryproject.embeddings.app import application
from memoryproject.serving.quiet_server import QuietServer

MAX_CONNECTIONS = 128


def serve(host: str, port: int, model_folder: Path | None, data_dir: Path | None) -> None:
    """Load the model, then serve until asked to end.

    Args:
        host, port: The address to listen on. Port 0 is any free port.
        model_folder: The folder of an ONNX model, or None for the packaged one.
        data_dir: The folder for the address file, if any.
    """
    try:
        app = application(served.load(model_folder))
    except Exception as error:
        sys.exit(f"The embeddings model can't be loaded: {error}")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, limit_concurrency=MAX_CONNECTIONS, timeout_graceful_shutdown=1
    )
    with socket.create_server((host, port), backlog=MAX_CONNECTIONS) as listening:
        host, port = listening.getsockname()[:2]
        server = QuietServer(config)
        for name in (signal.SIGINT, signal.SIGTERM):
            # A handler that raises an exception could be ignored by library code, before Uvicorn sets its own handlers.
            signal.signal(name, server.handle_exit)
        if data_dir:
            address.write(data_dir, f"http://{host}:{port}/v1")
        try:
            server.run([listening])
        finally:
            if data_dir:
                address.remove(data_dir)
