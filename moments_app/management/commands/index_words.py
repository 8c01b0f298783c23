from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.recall.index_words import index_words


class Command(BaseCommand):
    help = "Indexes the words of texts that an older version indexed, or that came past the application."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        done = index_words(dry_run=options["dry_run"], seconds=None)
        return f"waiting: {done.rows}" if options["dry_run"] else f"indexed: {done.rows}"
