"""Which of our files and functions run for a message, a build, a context and a retraction: `python -m benchmarks.walk`.

All requests and jobs run in this process. Calls of functions are counted by a profile function.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.figures import print_markdown
from benchmarks.site import ROOT, Site

APPS = ("sessions_app", "moments_app", "memoryproject")
SESSION, PERSON = "walk", {"user_id": "ada"}
MESSAGES = [
    {"role": "user", "content": "I moved to Bergen in March, and my kiln arrives on Friday."},
    {"role": "assistant", "content": "How exciting! Where will the kiln stand?"},
]
TITLE = "Files and functions that run"
NOTE = "Lines: of these files. A file or function counts once, however often it runs."


@dataclass
class Walk:
    """The functions that have run, by file."""

    functions: dict[str, set[str]] = field(default_factory=dict)

    def row(self, name: str) -> list[str]:
        lines = sum(len((ROOT / path).read_text().splitlines()) for path in self.functions)
        return [name, *(f"{n:,}" for n in (len(self.functions), sum(map(len, self.functions.values())), lines))]

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call. The interpreter calls this."""
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in APPS:
            self.functions.setdefault(str(path.relative_to(ROOT)), set()).add(frame.f_code.co_qualname)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note the calls of all threads until the block ends."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument("--files", action="store_true", help="also list the files of each step")
    options = parser.parse_args(arguments)
    with Site({"EMBEDDING__PROVIDER": "none"}):
        walks = walked()
    to_context = Walk()
    for name in ("append", "build", "context"):
        for path, functions in walks[name].functions.items():
            to_context.functions.setdefault(path, set()).update(functions)
    rows = [walk.row(name) for name, walk in (walks | {"from a message to a context": to_context}).items()]
    print_markdown(TITLE, ["step", "files", "functions", "lines"], rows, NOTE)
    for name, walk in walks.items() if options.files else ():
        print(f"\n{name}\n" + "\n".join(f"  {path}" for path in sorted(walk.functions)))
    return 0


def walked() -> dict[str, Walk]:
    """Return the walk of each step."""
    from django.conf import settings
    from django.test import Client

    from sessions_app.models import ApiKey
    from tests.support.jobs import run_queued

    # Requests with a key skip the middleware of pages (`call_handler.py`).
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name not in settings.MIDDLEWARE_OF_PAGES]

    _row, key = ApiKey.objects.issue("walk", scope="admin")
    client = Client(SERVER_NAME="localhost", headers={"authorization": f"Bearer {key}"})

    def post(path: str, body: dict[str, Any]) -> None:
        response = client.post(f"/api/v1/{path}", json.dumps(PERSON | body), "application/json")
        if response.status_code >= 400:
            raise RuntimeError(f"{path}: {response.content.decode()}")

    steps: dict[str, tuple[str, dict[str, Any]]] = {
        "append": (f"sessions/{SESSION}/messages", {"messages": MESSAGES}),
        "build": ("moments/build", {"session_id": SESSION, "force": True, "lag": 0}),
        "context": ("memory/context", {"session_id": "another", "query": "When does the kiln arrive?"}),
        "retraction": ("retractions", {"session_id": SESSION, "sequences": [0], "reason": "Ada asked for it."}),
    }
    post("memory/context", steps["context"][1])  # loads what is loaded once
    walks = {name: Walk() for name in steps}
    for name, (path, body) in steps.items():
        with walks[name].recording():
            post(path, body)
            if name in ("build", "retraction"):
                while run_queued():
                    pass
    return walks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
