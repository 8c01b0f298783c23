"""`register_assistant`: add a client that may request access by OAuth."""

from typing import Any

from django.core.management.base import CommandParser

from memory_extras.oauth.models import Assistant
from sessions_app.management.base import RefusingCommand, name_of


class Command(RefusingCommand):
    help = (
        "Register an assistant, which can then request access to /mcp by OAuth. The last line printed is its client id."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name on the consent page")
        parser.add_argument(
            "--redirect",
            action="append",
            required=True,
            metavar="URI",
            help="exact URI that receives the authorization codes",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        return str(Assistant.objects.register(name_of(options), options["redirect"]).client_id)
