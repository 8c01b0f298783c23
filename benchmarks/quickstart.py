"""Time from an empty folder to the first remembered answer, for each way to use the platform: `make quickstart`.

Clones the last commit, installs and starts a site as `make run` does, and runs code blocks of the docs like a reader.
Needs git, curl, node and the package registries of Python and npm. A stand-in replaces the model.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import print_markdown
from benchmarks.site import ROOT, end, free_port, wait_until_ready
from tests.support.first_steps import blocks_in
from tests.support.openai_server import Handler, OpenAIServer, content, streamed

TITLE = "From an empty folder to the first remembered answer"
COLUMNS = ("", "install s", "lines", "answer s")
NOTE = (
    "Install: from the package registries, with empty caches. Lines: non-blank lines of code. Answer: the time until "
    "the code prints an earlier message. If the code calls a model, the time until it prints the model's answer, "
    "whose prompt contained the earlier message. For the site and the container, the time until it is ready and has "
    "created a key. The other rows use the site of the first row, except the embedded one. For the container, install "
    "is the time to build the image."
)
IMAGE = "memory-platform"  # the tag of `make image`
FACT, QUESTION, ANSWER = "I restore kilns in Turin.", "Where was that?", "Noted."
CLIENT = "./clients/python"
READER = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}


@dataclass(frozen=True)
class Way:
    """A way to use the platform.

    Args:
        name: Its name.
        page: The page of the docs with its code, relative to `docs`.
        mark: A string in its code. Its code is the first code block of the page that contains this string.
        packages: The packages that the code needs.
        shows: A string that the code prints if memory works.
        asks_model: Whether the code calls a model. `shows` is then the model's answer.
        has_user_key: Whether the key belongs to the person.
    """

    name: str
    page: str
    mark: str
    packages: tuple[str, ...] = ()
    shows: str = FACT
    asks_model: bool = False
    has_user_key: bool = False

    def code(self) -> tuple[str, str]:
        """Return the language and the text of its code."""
        return next(block for block in blocks_in(self.page) if self.mark in block[1])


WAYS = (
    Way("curl", "../README.md", "curl", shows="- user: I teach the cello in Oslo."),
    Way("Python client", "clients.md", "memory.search(", (CLIENT,)),
    Way("`Memory(embedded=True)`", "clients.md", "embedded=True", (".[embedded,embeddings]",)),
    Way("mem0's methods", "clients.md", "client.mem0", (CLIENT,)),
    Way("OpenAI client", "chat.md", "previous_response_id", ("openai",), ANSWER, asks_model=True),
    Way("OpenAI Agents SDK", "frameworks.md", "Runner.run_sync", ("openai-agents",), ANSWER, asks_model=True),
    Way("Pydantic AI", "frameworks.md", "pydantic_ai", ("pydantic-ai-slim[openai]",), ANSWER, asks_model=True),
    Way("LangGraph", "frameworks.md", "MemoryStore", (CLIENT, "langgraph")),
    Way("Vercel AI SDK", "frameworks.md", "streamText", ("ai", "@ai-sdk/openai", "tsx"), ANSWER, asks_model=True),
    Way("MCP", "mcp.md", "call_tool", ("mcp",), "Nora restores kilns in Turin.", has_user_key=True),
)


class Installation:
    """A clone of the repository, and the site that runs from it.

    Args:
        folder: The folder for the clone, the package caches and the folders of the ways.
        model: The model of the chat endpoint.
    """

    def __init__(self, folder: Path, model: OpenAIServer) -> None:
        self._folder, self._model, self._clone, self._port = folder, model, folder / "platform", free_port()
        empty = {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1", "npm_config_cache": f"{folder}/npm"}
        self._installing = os.environ | empty
        own = {"DATA_DIR": ".data", "MEMORY_NEW_DATABASE": "1"}
        self._env = READER | own | {"CHAT__UPSTREAM_BASE_URL": model.base_url, "CHAT__UPSTREAM_API_KEY": "none"}
        self._python = str(self._clone / ".venv/bin/python")

    def rows(self) -> Iterator[list[str]]:
        """Install and start the site, then use it in each way. Yield the row of each."""
        started = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), self._clone], check=True)
        subprocess.run(["make", "--silent", ".venv/installed"], cwd=self._clone, env=self._installing, check=True)
        installed = time.monotonic()
        command = [self._python, "manage.py", "run", "--port", str(self._port)]
        site = subprocess.Popen(command, cwd=self._clone, env=self._env, stdout=sys.stderr)
        try:
            wait_until_ready(site, self._port)
            key = self._key()
            yield _row("the site: `make run`", installed - started, 1, time.monotonic() - installed)
            for number, way in enumerate(WAYS):
                yield self._used(way, f"nora-{number}", key)
        finally:
            end(site)
        yield self._in_container()

    def _key(self, *options: str) -> str:
        command = [self._python, "manage.py", "create_api_key", "quickstart", *options]
        made = subprocess.run(command, cwd=self._clone, env=self._env, stdout=subprocess.PIPE, text=True, check=True)
        return made.stdout.split()[-1]

    def _in_container(self) -> list[str]:
        """Build the image, and start a container with a new volume as the docs do."""
        name, port = "`docker run`", free_port()
        if not has_docker():
            return [name, "not measured: no daemon", "", ""]
        container = f"memory-quickstart-{port}"
        started = time.monotonic()
        subprocess.run(["make", "--silent", "image"], cwd=self._clone, stdout=sys.stderr, check=True)
        built = time.monotonic()
        command = ["docker", "run", "--rm", "--name", container, "--publish", f"127.0.0.1:{port}:8000"]
        command += ["--volume", f"{container}:/data", IMAGE]
        site = subprocess.Popen(command, stdout=sys.stderr)
        try:
            wait_until_ready(site, port)
            create_key = ["docker", "exec", container, "memory-platform", "create_api_key", "quickstart"]
            subprocess.run(create_key, stdout=subprocess.DEVNULL, check=True)
            return _row(name, built - started, 1, time.monotonic() - built)
        finally:
            end(site)
            subprocess.run(["docker", "volume", "rm", "--force", container], stdout=sys.stderr)

    def _used(self, way: Way, person: str, key: str) -> list[str]:
        """Use a way in a new folder, as a new person without memory."""
        language, code = way.code()
        here = self._folder / person
        here.mkdir()
        file = here / {"python": "first.py", "sh": "first.sh", "ts": "first.mts"}[language]
        file.write_text(code.replace("localhost:8000", f"127.0.0.1:{self._port}").replace("nora", person))
        runner, install = {
            "python": (f"{here}/env/bin/python", [f"{here}/env/bin/python", "-m", "pip", "install", "--quiet"]),
            "sh": ("sh", []),
            "ts": (f"{here}/node_modules/.bin/tsx", ["npm", "install", "--silent", "--prefix", str(here)]),
        }[language]
        started = time.monotonic()
        if language == "python":
            subprocess.run([sys.executable, "-m", "venv", f"{here}/env"], check=True)
        if way.packages:
            subprocess.run([*install, *way.packages], cwd=self._clone, env=self._installing, check=True)
        installed = time.monotonic() - started if way.packages else None
        env = READER | {"MEMORY_KEY": self._key("--user", person) if way.has_user_key else key, "PYTHONUNBUFFERED": "1"}
        seconds = seconds_until(way.shows, [runner, file.name], here, env)
        if way.asks_model and not all(text in json.dumps(self._model.requests[-1]) for text in (FACT, QUESTION)):
            raise RuntimeError(f"{way.name}: the model didn't receive the earlier message with the question.")
        return _row(way.name, installed, sum(bool(line.strip()) for line in code.splitlines()), seconds)


def _row(name: str, installed: float | None, lines: int, answered: float) -> list[str]:
    return [name, "–" if installed is None else f"{installed:.0f}", str(lines), f"{answered:.1f}"]


def has_docker() -> bool:
    """Return whether a Docker daemon responds."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True).returncode == 0


def seconds_until(text: str, command: list[str], folder: Path, env: Mapping[str, str]) -> float:
    """Run a command to its end, and return the seconds until it printed a line with this text.

    Raises:
        RuntimeError: The command failed, or did not print the text.
    """
    seconds = None
    started = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if seconds is None and text in line:
                seconds = time.monotonic() - started
    if process.returncode or seconds is None:
        raise RuntimeError(f"{command} ended with {process.returncode}, and without the line {text!r}.")
    return seconds


def _noted(handler: Handler, body: dict[str, Any]) -> None:
    """Answer like a model, as a stream if the request asks for one."""
    (streamed(ANSWER) if body.get("stream") else content(ANSWER))(handler, body)


def main(arguments: list[str]) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.quickstart", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="memory-quickstart-") as folder, OpenAIServer() as model:
        Path(folder).chmod(0o755)  # if this runs as root, the database server runs as another user
        model.always(_noted)
        print_markdown(TITLE, COLUMNS, Installation(Path(folder), model).rows(), NOTE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
