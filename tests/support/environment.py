"""The environment of all tests, set before the settings are read. Tests turn on embeddings themselves."""

import os

os.environ.setdefault("EMBEDDING__PROVIDER", "none")
