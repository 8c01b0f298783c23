from typing import Any

from django.core.management.commands.migrate import Command as Migrate

from memoryproject.database.verification import refuse_other_versions


class Command(Migrate):
    """Django's `migrate`, which refuses data of other versions before Django reads the migrations."""

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_other_versions()
        super().handle(*args, **options)
