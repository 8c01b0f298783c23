"""`manage.py poison_drill`: plant attacks in a throw-away installation by every door, and print who saw what."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.drill.poison.attacks import ATTACKS
from memoryproject.drill.poison.doors import DOORS
from memoryproject.drill.poison.engines import ENGINES, drilled
from memoryproject.drill.poison.report import Row, table
from memoryproject.drill.site import NotWell
from memoryproject.management.stoppable import stoppable


class Command(BaseCommand):
    help = (
        "Plants attack conversations in a throw-away installation, never this one, by every door; says who would have "
        "seen what of them, retracts them, and compares all contexts with those of before."
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
            with stoppable():
                for engine in options["engine"] or ENGINES:
                    rows += drilled(engine, attacks, options["door"] or list(DOORS), self._say)
        except NotWell as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("The drill was stopped.") from None
        self._report(rows, began, options["json"])

    def _report(self, rows: list[Row], began: float, path: Path | None) -> None:
        """Print the table, and fail if anything got further than it should."""
        self._say(f"\n{table(rows)}\n\nTook {time.monotonic() - began:.0f} s.")
        if path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        if remarks := [remark for row in rows for remark in row.remarks()]:
            raise CommandError("\n".join(remarks))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
