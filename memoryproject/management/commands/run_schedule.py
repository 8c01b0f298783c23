from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.schedules import UnknownSchedule, schedule_named


class Command(BaseCommand):
    help = "Runs here and now what runs by itself under a name; `manage.py schedules` lists the names."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="of the schedule")
        parser.add_argument("--dry-run", action="store_true", help="find and count the same, and change nothing")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            scheduled = schedule_named(options["name"])
        except UnknownSchedule as error:
            raise CommandError(str(error)) from error
        done = scheduled.run(dry_run=options["dry_run"])
        if getattr(done, "failures", ()):
            raise CommandError(str(done))
        return str(done)
