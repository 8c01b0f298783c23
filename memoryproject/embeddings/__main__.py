"""Serves embeddings: `python -m memoryproject.embeddings`."""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import argparse
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from memoryproject.embeddings import address, served
from memoryproject.embeddings.app import application
from memoryproject.process_tree import call_itself, die_with_parent
from memoryproject.quiet_server import QuietServer

MAX_CONNECTIONS = 128


def main() -> None:
    """Load the model, then serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="port; 0: any free port")
    parser.add_argument("--model-folder", type=Path)
    parser.add_argument("--data-dir", type=Path, help="file to write the address to")
    told = parser.parse_args()
    die_with_parent()
    call_itself("embeddings")
    try:
        app = application(served.load(told.model_folder))
    except Exception as error:
        sys.exit(f"The embeddings model can't be loaded: {error}")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, limit_concurrency=MAX_CONNECTIONS, timeout_graceful_shutdown=1
    )
    with socket.create_server((told.host, told.port), backlog=MAX_CONNECTIONS) as listening:
        host, port = listening.getsockname()[:2]
        server = QuietServer(config)
        for name in (signal.SIGINT, signal.SIGTERM):
            # A handler that raises could be lost in code that ignores exceptions, before Uvicorn sets its own.
            signal.signal(name, server.handle_exit)
        if told.data_dir:
            address.write(told.data_dir, f"http://{host}:{port}/v1")
        try:
            server.run([listening])
        finally:
            if told.data_dir:
                address.remove(told.data_dir)


if __name__ == "__main__":
    main()
