from typing import Any

from django.core.management.base import BaseCommand
from django_q.models import Schedule

from memoryproject.schedules import register_schedules, schedules


class Command(BaseCommand):
    help = "Register the schedules, and list them with the time of their next run."

    def handle(self, *args: Any, **options: Any) -> str:
        register_schedules()
        known = schedules()
        rows = Schedule.objects.filter(name__in=known).order_by("name")
        return "\n".join(f"{row.name}: {known[row.name]}, next {row.next_run:%Y-%m-%d %H:%M} UTC" for row in rows)
