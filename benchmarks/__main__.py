"""Run the benchmarks named on the command line, or all of them, on a database of their own."""

import importlib
import sys
import time

from benchmarks import seed
from benchmarks.figures import describe_machine, print_table
from benchmarks.site import Site

NAMES = (
    "append",
    "load",
    "build",
    "context",
    "recall",
    "chat",
    "settle",
    "retention",
    "imports",
    "erase",
    "mcp",
    "admin",  # last, because it begins with an empty database
)


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"No such benchmark: {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    started = time.monotonic()
    with Site() as site:
        seed.populate()
        print(describe_machine(site.conninfo))
        for name in sorted(names, key=NAMES.index) or NAMES:
            # Imported only now, because these modules need Django to be set up.
            topic = importlib.import_module(f"benchmarks.{name}")
            print_table(topic.TITLE, topic.figures(site), topic.NOTE)
    print(f"\nTook {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
