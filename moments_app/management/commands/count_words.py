from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.recall.count_words import sweep


class Command(BaseCommand):
    help = "Asks for a count of the words of those whose sessions have grown."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        return f"asked for: {sweep(dry_run=options['dry_run'])}"
