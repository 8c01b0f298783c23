from typing import Any

from django.core.management.base import BaseCommand

from moments_app.processes.form_memories import sweep


class Command(BaseCommand):
    help = "Asks for the formation of memories of sessions that have gone cold."

    def handle(self, *args: Any, **options: Any) -> str:
        return f"asked for: {sweep()}"
