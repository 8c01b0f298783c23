from typing import Any

from django.core.checks import CRITICAL, Tags
from django.core.management.commands.migrate import Command as Migrate

from memoryproject.database.verification import refuse_other_versions


class Command(Migrate):
    """Run Django's `migrate`, but first refuse data from other versions.

    Afterward, it prints warnings about the database, such as tables of removed extras.
    """

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_other_versions()
        super().handle(*args, **options)
        self.check(tags=[Tags.database], databases=[options["database"]], fail_level=CRITICAL)
