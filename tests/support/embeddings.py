"""The embedded embeddings server as a separate program. It writes its address like under `manage.py run`."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memoryproject.conf import BASE_DIR
from memoryproject.embeddings import ADDRESS_FILE
from memoryproject.process_tree import PARENT
from tests.support.waiting import wait_until


def command(data_dir: Path, model_folder: str = "") -> list[str]:
    """Return the Python interpreter's arguments that run the server for a data directory.

    Args:
        data_dir: The directory where the server writes its address.
        model_folder: The folder of an ONNX model. Blank for the packaged one.
    """
    of_folder = ["--model-folder", model_folder] if model_folder else []
    return ["-m", "memoryproject.embeddings", "--data-dir", str(data_dir), *of_folder]


@contextmanager
def serving(data_dir: Path, model_folder: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Run the server of a data directory until the block ends."""
    process = subprocess.Popen(
        [sys.executable, *command(data_dir, model_folder)],
        cwd=BASE_DIR,
        env=os.environ | {PARENT: str(os.getpid())},
    )
    try:
        wait_until(lambda: (data_dir / ADDRESS_FILE).exists() or process.poll() is not None)
        assert process.poll() is None
        yield process
    finally:
        process.terminate()
        process.wait()


def post(base_url: str, **body: Any) -> tuple[int, Any]:
    """Request embeddings. Return the status and the body."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url}/embeddings", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
