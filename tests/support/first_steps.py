"""Runs the code blocks of the docs, like a reader who copies them."""

import json
import re
import shlex
import urllib.request
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from memoryproject.conf import BASE_DIR

DOCS = BASE_DIR / "docs"


def blocks_in(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each code block in a page, whose path is relative to `docs`."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def python_in(page: str) -> list[str]:
    """Return the blocks of Python in a page."""
    return [text for language, text in blocks_in(page) if language == "python"]


def commands_of(block: str) -> list[list[str]]:
    """Return the arguments of each command in a block of shell."""
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def curl(arguments: list[str], site: str, key: str) -> Any:
    """Send the request that `curl` would send, and return the response."""
    body, headers, address = None, {}, ""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value.replace("$MEMORY_KEY", key)
        elif argument == "-d":
            body = next(rest).encode()
        elif argument == "|":
            break
        elif not argument.startswith("-"):
            address = argument.replace("localhost:8000", site)
    with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
        return json.load(answer)


def printed(code: str, site: str, key: str) -> str:
    """Run code with a key against a site, and return what it prints."""
    told = StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(told):
        patched.setenv("MEMORY_KEY", key)
        patched.setenv("MEMORY_URL", site)
        exec(compile(code.replace("http://localhost:8000", site), "docs", "exec"), {"__name__": "__main__"})
    return told.getvalue()
