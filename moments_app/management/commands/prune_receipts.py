from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.models import ContextReceipt


class Command(BaseCommand):
    help = "Deletes receipts of contexts older than MEMORY_CONTEXT__RECEIPT_DAYS."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> str:
        expired = ContextReceipt.objects.expired()
        count = expired.count() if options["dry_run"] else expired.delete()[0]
        return f"deleted: {count}"
