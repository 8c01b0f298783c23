from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.schedules import UnknownSchedule, schedule_named


class Command(BaseCommand):
    help = "Run a schedule now. `manage.py schedules` lists the names."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the schedule")
        parser.add_argument("--dry-run", action="store_true", help="only count, and change nothing")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            scheduled = schedule_named(options["name"])
        except UnknownSchedule as error:
            raise CommandError(str(error)) from error
        done = scheduled.run(dry_run=options["dry_run"])
        if getattr(done, "failures", ()):
            raise CommandError(str(done))
        return str(done)
