"""The environment of all tests, set before the settings are read: texts are embedded only where a test says so."""

import os

os.environ.setdefault("EMBEDDING__PROVIDER", "none")
