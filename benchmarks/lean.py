"""CPU time and memory of every process of an idle site with default settings: `python -m benchmarks.lean`.

The site is measured just after its start, and again after some calls of each kind. `--keep` saves the results for
comparisons with later runs. Linux only, because it reads /proc.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.clients import Http
from benchmarks.figures import print_markdown
from benchmarks.site import ROOT, SETTINGS, end, free_port, wait_until_ready

KEPT = Path(__file__).parent / "kept_lean.json"
PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
REST = 150  # seconds until the jobs after the start or the calls are done, and workers have exited
SECONDS = 60  # duration of a measurement
CALLS = 20  # of each kind
STARTED, USED = "just started", "after calls"
TITLE = "Idle processes"
NOTE = (
    "CPU: milliseconds per second, of all processes of a purpose. Memory: their proportional set size (PSS) in MB. It "
    "counts a page that processes share once."
)
# The purpose of a process by a pattern for its name and command line. The first match counts.
PURPOSES = {
    r"^postgres postgres: \S*worker \w+ \[": "PostgreSQL, a worker's connection",
    r"^postgres postgres: \S*web \w+ \[": "PostgreSQL, a web process's connection",
    r"^postgres postgres: \w+ \w+ \[": "PostgreSQL, another connection",
    r"^postgres ": "PostgreSQL, its own processes",
    r"^Worker ": "worker",
    r"^The watchdog": "watchdog",
    r"^The embeddings": "embeddings server",
    r"^Web worker": "web process",
    r"^The web server": "supervisor of web processes",
    r"manage\.py run": "supervisor",
}

Figures = dict[str, dict[str, float]]  # numbers by purpose: processes, CPU and memory


@dataclass(frozen=True)
class Process:
    """A running process.

    Args:
        pid, parent: Its id, and its parent's.
        purpose: As in `PURPOSES`.
        cpu: CPU seconds so far.
        pss: Memory in MB.
    """

    pid: int
    parent: int
    purpose: str
    cpu: float
    pss: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lean", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="compare later runs with this one")
    options = parser.parse_args(arguments)
    kept: dict[str, Figures] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    measured: dict[str, Figures] = {}
    with running_site() as (folder, pid, port, key):
        for state in (STARTED, USED):
            if state == USED:
                _call(port, key)
            time.sleep(REST)
            measured[state] = measure(pid, folder)
            columns = ["purpose", "processes", "CPU ms/s", "kept", "memory", "kept"]
            print_markdown(f"{TITLE}, {state}", columns, _rows(measured[state], kept.get(state, {})), NOTE)
    if options.keep:
        KEPT.write_text(json.dumps(measured, indent=1) + "\n")
    return 0


@contextmanager
def running_site() -> Iterator[tuple[Path, int, int, str]]:
    """Run a site like `make run`. Yield its DATA_DIR, the id of its first process, its port and a key."""
    with tempfile.TemporaryDirectory(prefix="memory-lean-") as folder:
        env = os.environ | SETTINGS | {"DATA_DIR": folder}
        port = free_port()
        command = [sys.executable, "manage.py", "run", "--port", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=sys.stderr)
        try:
            wait_until_ready(process, port)
            create = [sys.executable, "manage.py", "create_api_key", "lean"]
            key = subprocess.run(create, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
            yield Path(folder), process.pid, port, key.split()[-1]
        finally:
            end(process)


def _call(port: int, key: str) -> None:
    """Make calls of each kind."""
    person, api = {"user_id": "lean"}, "/api/v1"
    said = {"messages": [{"role": "user", "content": "We moved the studio to Turin in March."}]}
    about = {"session_id": "lean", "query": "Where is the studio?"}
    calls = [
        ("POST", f"{api}/sessions/lean/messages", person | said),
        ("POST", f"{api}/memory/context", person | about),
        ("POST", f"{api}/memory/search", person | {"query": about["query"]}),
        ("GET", f"{api}/sessions/lean/messages?user_id=lean", None),
        ("GET", f"{api}/facts?user_id=lean", None),
        ("GET", f"{api}/schema", None),
        ("GET", "/admin/login/", None),
    ]
    for _number, (method, path, body) in product(range(CALLS), calls):
        with closing(Http(port, key)) as http:  # new connections reach all web processes
            http.request(method, path, body)


def measure(pid: int, folder: Path) -> Figures:
    """Return the processes, the CPU time and the memory of a site, by purpose.

    Args:
        pid: The id of its first process.
        folder: Its DATA_DIR, which contains the database.
    """
    before, started = {process.pid: process.cpu for process in processes_of(pid, folder)}, time.monotonic()
    time.sleep(SECONDS)
    after, seconds = processes_of(pid, folder), time.monotonic() - started
    figures: Figures = defaultdict(lambda: {"processes": 0, "cpu": 0.0, "pss": 0.0})
    for process in after:
        earlier = before.get(process.pid, 0.0)
        figure = figures[process.purpose]
        figure["processes"] += 1
        figure["cpu"] += (process.cpu - earlier) * 1000 / seconds
        figure["pss"] += process.pss
    return dict(figures)


def processes_of(pid: int, folder: Path) -> list[Process]:
    """Return a site's processes: its first one, its database, and all their descendants."""
    database = int((folder / "postgres/postmaster.pid").read_text().split()[0])
    everything = {process.pid: process for process in _processes()}
    found = {root: everything[root] for root in (pid, database) if root in everything}
    while more := {pid: one for pid, one in everything.items() if one.parent in found and pid not in found}:
        found |= more
    return list(found.values())


def _processes() -> Iterator[Process]:
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                yield _process(int(folder.name), folder)
            except (OSError, ValueError):
                continue  # it ended meanwhile, or belongs to another user


def _process(pid: int, folder: Path) -> Process:
    """Read the state of a process. See proc(5) for the fields."""
    name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    pss = re.search(r"^Pss:\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
    called = f"{name} {command}"
    purpose = next((what for pattern, what in PURPOSES.items() if re.search(pattern, called)), "other")
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return Process(pid, int(fields[1]), purpose, cpu, int(pss[1]) / 1024 if pss else 0.0)


def _rows(figures: Figures, kept: Figures) -> Iterator[list[str]]:
    for purpose, figure in sorted(figures.items(), key=lambda one: -one[1]["pss"]):
        yield _row(purpose, figure, kept.get(purpose))
    yield _row("all", _sum(figures), _sum(kept) if kept else None)


def _row(purpose: str, figure: Mapping[str, float], kept: Mapping[str, float] | None) -> list[str]:
    cells = [f"{figure['processes']:.0f}"]
    for name, form in (("cpu", ".1f"), ("pss", ".0f")):
        cells += [format(figure[name], form), format(kept[name], form) if kept else ""]
    return [purpose, *cells]


def _sum(figures: Figures) -> dict[str, float]:
    return {name: sum(figure[name] for figure in figures.values()) for name in ("processes", "cpu", "pss")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
