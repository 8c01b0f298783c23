"""Inject every known fault into a throw-away installation, and print a table of the results: `python -m drill`."""

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from drill.course import Course
from drill.faults import PARTS
from drill.report import Row, added, table
from drill.stoppable import interrupt_on_sigterm


class Command(BaseCommand):
    help = (
        "Inject faults into a throw-away installation, never into this one: kills, hangs, outages, a full disk. "
        "Print what was acknowledged, lost and duplicated, and the seconds to recover."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"all unless named: {', '.join(PARTS)}")
        parser.add_argument("--kills", type=int, default=3, metavar="N", help="of each kind of process (3)")
        parser.add_argument("--outage", type=float, default=30, metavar="SECONDS", help="that the models are away (30)")
        parser.add_argument(
            "--seed", type=int, default=25, metavar="N", help="of chance; parts of a long run differ in it"
        )
        parser.add_argument("--after", type=Path, metavar="FILE", help="with the rows of the parts before this one")
        parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written as well")

    def handle(self, *args: Any, **options: Any) -> None:
        if unknown := sorted(set(options["parts"]) - set(PARTS)):
            raise CommandError(f"No such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}.")
        began = time.monotonic()
        rows = _rows(options["after"])
        try:
            with (
                interrupt_on_sigterm(),
                Course(
                    self._say,
                    options["kills"],
                    options["outage"],
                    os.environ.get("DATABASE_URL", ""),
                    options["seed"],
                ) as course,
            ):
                for name, part in PARTS.items():
                    if name in options["parts"] or not options["parts"]:
                        rows += part(course)
        except KeyboardInterrupt:
            self._report(rows, began, options["json"])
            raise CommandError("The drill was stopped. The unfinished fault is not in the table.") from None
        self._report(rows, began, options["json"])

    def _report(self, rows: list[Row], began: float, path: Path | None) -> None:
        """Print the table, and fail if something was lost, duplicated, or did not recover."""
        rows = added(rows)
        self._say(f"\n{table(rows)}\n\nTook {time.monotonic() - began:.0f} s.")
        if path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        if broken := [row.fault for row in rows if not row.is_well]:
            raise CommandError(f"Lost, duplicated, or not recovered: {', '.join(broken)}.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _rows(path: Path | None) -> list[Row]:
    """Return the rows in a file that the command wrote.

    Raises:
        CommandError: The file can't be read, or contains something else.
    """
    try:
        return [Row(**row) for row in json.loads(path.read_text())] if path else []
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"{path} can't be read as the rows of a drill: {error}.") from error


if __name__ == "__main__":
    Command().run_from_argv(["python -m", "drill", *sys.argv[1:]])
