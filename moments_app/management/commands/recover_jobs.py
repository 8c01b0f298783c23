from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.jobs.recovery import recover_jobs


class Command(BaseCommand):
    help = "Finds jobs that nobody works on and queues them again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        found = recover_jobs(dry_run=options["dry_run"])
        return (
            f"taken from dead workers: {found.taken_over}, given up: {found.given_up}, requeued: {found.requeued}, "
            f"summaries begun anew: {found.summaries}"
        )
