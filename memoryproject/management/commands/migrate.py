from typing import Any

from django.core.checks import CRITICAL, Tags
from django.core.management.commands.migrate import Command as Migrate

from memoryproject.database.verification import refuse_other_versions


class Command(Migrate):
    """Django's `migrate`, which refuses data of other versions before Django reads the migrations.

    Afterward, it prints warnings about the database, such as tables of removed extras.
    """

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_other_versions()
        super().handle(*args, **options)
        self.check(tags=[Tags.database], databases=[options["database"]], fail_level=CRITICAL)
