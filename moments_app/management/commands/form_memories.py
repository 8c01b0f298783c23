from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.streams.form import sweep


class Command(BaseCommand):
    help = "Asks for the formation of memories of sessions that have gone cold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        return f"asked for: {sweep(dry_run=options['dry_run'])}"
