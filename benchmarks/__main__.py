"""Run the benchmarks named on the command line, or all of them, on their own database.

`main` runs those of the main table in a few minutes, with smaller sizes than their defaults. `--json FILE` writes the
results, and `--keep` saves them for comparisons with later runs.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import seed
from benchmarks.figures import describe_machine, print_table
from benchmarks.kept import KEPT, Results, print_comparison
from benchmarks.site import Site

NAMES = (
    "append",
    "build",
    "context",
    "recall",
    "chat",
    "settle",
    "retention",
    "imports",
    "erase",
    "mcp",
    "admin",  # last, because it starts with an empty database
)


# The benchmarks of the main table, with values that differ from their defaults.
MAIN: dict[str, dict[str, Any]] = {
    "append": {"ROUNDS": 3},
    "context": {"LENGTHS": (200, 10_000, 100_000), "MEMORIES": (10, 1_000), "ROUNDS": 8},
    "settle": {"SESSIONS": 1_000, "SETTLED": 100},
    "imports": {"FILE_MB": 20},
}


def main(arguments: list[str]) -> int:
    asked = _asked(arguments)
    started = time.monotonic()
    with Site() as site:
        seed.populate()
        results = Results(describe_machine(site.conninfo))
        print(results.machine)
        for name in MAIN if asked.names == ["main"] else sorted(asked.names, key=NAMES.index) or NAMES:
            topic = _topic(name, is_main=asked.names == ["main"])
            results.tables[topic.TITLE] = topic.figures(site)
            print_table(topic.TITLE, results.tables[topic.TITLE], topic.NOTE)
    results.seconds = round(time.monotonic() - started)
    print(f"\nTook {results.seconds:.0f} s.")
    if KEPT.exists():
        print_comparison(results, Results.read(KEPT))
    for path in (asked.json, KEPT if asked.keep else None):
        if path:
            results.write(path)
    return 0


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, "main", []], help="Which; all of them if none is named.")
    parser.add_argument("--json", type=Path, help="File that the results are written to.")
    parser.add_argument("--keep", action="store_true", help="Compare later runs with this one.")
    return parser.parse_args(arguments)


def _topic(name: str, *, is_main: bool) -> ModuleType:
    """Import the module of a benchmark. These modules require a configured Django, so they are imported late."""
    topic = importlib.import_module(f"benchmarks.{name}")
    for constant, value in MAIN[name].items() if is_main else ():
        setattr(topic, constant, value)
    return topic


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
