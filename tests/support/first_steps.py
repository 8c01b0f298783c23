"""The code in docs, run as whoever copies it runs it."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings

DOCS = Path(settings.BASE_DIR) / "docs"


def python_in(page: str) -> list[str]:
    """Return the blocks of Python in a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def printed(code: str, site: str, key: str) -> str:
    """Return what code prints that is run with a key against a site."""
    told = StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(told):
        patched.setenv("MEMORY_KEY", key)
        exec(compile(code.replace("http://localhost:8000", site), "docs", "exec"), {"__name__": "__main__"})
    return told.getvalue()
