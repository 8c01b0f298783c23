"""The option by which a command is told the application it is about."""

from typing import Any

from django.core.management.base import CommandParser

from sessions_app.models import Application
from sessions_app.models.application import DEFAULT


def add_application(parser: CommandParser) -> None:
    """Let a command be told an application."""
    parser.add_argument("--application", metavar="NAME", help="name of the application; default: the first application")


def application_of(options: dict[str, Any]) -> int:
    """Return the primary key of the application that a command was told.

    Raises:
        UnknownApplication: there is none of that name.
    """
    name = options["application"]
    return Application.objects.named(name).pk if name is not None else DEFAULT
