from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.reports.housekeeping import housekeeping


class Command(BaseCommand):
    help = "Deletes records of work that ended more than JOBS__KEEP_DAYS ago and that nothing leads to."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        done = asdict(housekeeping(dry_run=options["dry_run"]))
        return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in done.items())
