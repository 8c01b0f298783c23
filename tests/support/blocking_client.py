"""Generates the blocking Python client from the one with `await`: `python -m tests.support.blocking_client`."""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "clients/python/memory_platform/client"
WRITTEN, MADE = PACKAGE / "asynchronous.py", PACKAGE / "blocking.py"
TITLE = '"""The client without `await`. `make clients` generates it from `asynchronous.py`."""'

# Applied in this order. The last ones change text.
CHANGES = {
    r'\A""".*"""$': TITLE,
    r"^import asyncio\nimport os$": "import os\nimport time",
    r"\bAsyncIterator, Iterable\b": "Iterable, Iterator",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\basyncio\.to_thread\(([\w.]+)\)": r"\1()",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\baclose\b": "close",
    r"\basync (?=def|with|for)": "",
    r"\bawait ": "",
    r"\ban `?(?=Async[A-Z])": lambda found: found[0].replace("an", "a"),
    r"\bAsync(?=[A-Z])": "",
    r"several tasks": "several threads",
}


def made() -> str:
    """Return the blocking client, formatted by ruff."""
    code = WRITTEN.read_text()
    for pattern, replacement in CHANGES.items():
        code = re.sub(pattern, replacement, code, flags=re.MULTILINE)  # type: ignore[call-overload]
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(MADE), "-"]
    return subprocess.run(ruff, input=code, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    MADE.write_text(made())
