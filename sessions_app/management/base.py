"""Base class of commands that may raise a `Refusal`, and functions that read their arguments."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.models import Application, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.refusals import Refusal

NAME_MAX_CHARS = 255


class InvalidArgument(Refusal):
    """An invalid argument of a command. The message names the argument."""


class RefusingCommand(BaseCommand):
    """A command that ends with an error message if it raises a `Refusal`."""

    unchanged = ""  # a sentence to add to the error message

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Refusal as error:
            raise CommandError(f"{error} {self.unchanged}".rstrip()) from error


def add_application(parser: CommandParser) -> None:
    parser.add_argument("--application", metavar="NAME", help="name of the application; default: the first application")


def application_of(options: dict[str, Any]) -> int:
    """Return the primary key of the application in a command's options. Raise UnknownApplication if there is none."""
    name = options["application"]
    return Application.objects.named(name).pk if name is not None else DEFAULT


def name_of(options: dict[str, Any]) -> str:
    """Return the argument `name`. Raise InvalidArgument if it is blank or too long."""
    name: str = options["name"].strip()
    if not 1 <= len(name) <= NAME_MAX_CHARS:
        raise InvalidArgument(f"The name must have 1 to {NAME_MAX_CHARS} characters.")
    return name


def public_id(option: str, value: str) -> str:
    """Validate an id as the API does, and return it. Raise InvalidArgument if it is not valid."""
    # Most commands don't need these modules, and loading them takes a tenth of their CPU time.
    from rest_framework.exceptions import ValidationError

    from sessions_app.api.fields import PublicIdField

    try:
        return str(PublicIdField().run_validation(value))
    except ValidationError as error:
        raise InvalidArgument(f"{option}: {' '.join(map(str, error.detail))}") from error


def person_of(user_id: str, application: int) -> UserProfile:
    """Return a person of an application. Raise CommandError if there is none."""
    person = UserProfile.objects.named(user_id, application)
    if person is None:
        raise CommandError(f"There is no user {user_id!r}.")
    return person
