"""The command-line option `--application`."""

from typing import Any

from django.core.management.base import CommandParser

from sessions_app.models import Application
from sessions_app.models.application import DEFAULT


def add_application(parser: CommandParser) -> None:
    """Add the option to a command."""
    parser.add_argument("--application", metavar="NAME", help="name of the application; default: the first application")


def application_of(options: dict[str, Any]) -> int:
    """Return the primary key of the application in a command's options.

    Raises:
        UnknownApplication: No application has this name.
    """
    name = options["application"]
    return Application.objects.named(name).pk if name is not None else DEFAULT
