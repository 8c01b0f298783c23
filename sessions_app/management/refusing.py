"""The base of commands that may be refused."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.refusals import Refusal


class RefusingCommand(BaseCommand):
    """A command that ends with the reason when what it is asked for is refused.

    Attributes:
        unchanged: a sentence that follows the reason.
    """

    unchanged = ""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Refusal as error:
            raise CommandError(f"{error} {self.unchanged}".rstrip()) from error
