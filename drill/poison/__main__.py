"""Plant attacks in a throw-away installation through every entry point, and report who saw them."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from drill.poison.attacks import ATTACKS
from drill.poison.doors import DOORS
from drill.poison.engines import ENGINES, drilled
from drill.poison.report import Row, table
from drill.site import SiteNotReady
from drill.stoppable import interrupt_on_sigterm


class Command(BaseCommand):
    help = (
        "Plant attack conversations in a throw-away installation, never in this one, through every entry point. "
        "Report who would have seen them, retract them, and compare all contexts with the earlier ones."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        names = [attack.name for attack in ATTACKS]
        parser.add_argument("--attack", action="append", choices=names, help="all unless named; may be repeated")
        parser.add_argument("--door", action="append", choices=list(DOORS), help="all unless named")
        parser.add_argument(
            "--engine", action="append", choices=list(ENGINES), help="extractive and obedient unless named"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written as well")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        attacks = [attack for attack in ATTACKS if attack.name in (options["attack"] or [attack.name])]
        rows: list[Row] = []
        try:
            with interrupt_on_sigterm():
                for engine in options["engine"] or ENGINES:
                    rows += drilled(engine, attacks, options["door"] or list(DOORS), self._say)
        except SiteNotReady as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("The drill was stopped.") from None
        self._report(rows, began, options["json"])

    def _report(self, rows: list[Row], began: float, path: Path | None) -> None:
        """Print the table, and fail if a planted text reached others, escaped, or was left behind."""
        self._say(f"\n{table(rows)}\n\nTook {time.monotonic() - began:.0f} s.")
        if path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        if remarks := [remark for row in rows for remark in row.remarks()]:
            raise CommandError("\n".join(remarks))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


if __name__ == "__main__":
    Command().run_from_argv(["python -m", "drill.poison", *sys.argv[1:]])
