from typing import Any

from django.core.management.base import BaseCommand

from moments_app.processes.count_words import sweep


class Command(BaseCommand):
    help = "Asks for a count of the words of those whose sessions have grown."

    def handle(self, *args: Any, **options: Any) -> str:
        return f"asked for: {sweep()}"
