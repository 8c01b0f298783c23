"""Commands that tests run in their own process."""

from io import StringIO
from typing import Any

from django.core.management import call_command


def printed(command: str, *arguments: str, **options: Any) -> str:
    """Run a command, and return what it prints to the standard output."""
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()
