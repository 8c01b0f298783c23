from typing import Any

from django.core.management.base import BaseCommand

from moments_app.models import ContextReceipt


class Command(BaseCommand):
    help = "Deletes receipts of contexts older than MEMORY_CONTEXT__RECEIPT_DAYS."

    def handle(self, *args: Any, **options: Any) -> str:
        count, _ = ContextReceipt.objects.expired().delete()
        return f"deleted: {count}"
