"""The base of commands that may raise a `Refusal`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.refusals import Refusal


class RefusingCommand(BaseCommand):
    """A command that ends with an error message if it raises a `Refusal`.

    Attributes:
        unchanged: A sentence that follows the reason.
    """

    unchanged = ""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Refusal as error:
            raise CommandError(f"{error} {self.unchanged}".rstrip()) from error
