"""`register_assistant`: add a client that may ask operators for keys by OAuth."""

from typing import Any

from django.core.management.base import CommandParser

from sessions_app.management.refusing import RefusingCommand
from sessions_app.models import OAuthClient
from sessions_app.models.oauth import check_redirect_uri


class Command(RefusingCommand):
    help = (
        "Register an assistant, which may then ask for keys to /mcp by OAuth. The last line printed is its client id."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="as operators will read it")
        parser.add_argument(
            "--redirect", action="append", required=True, metavar="URI", help="where codes may be sent, exactly"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        for uri in options["redirect"]:
            check_redirect_uri(uri)
        client = OAuthClient.objects.register(options["name"], options["redirect"], by="operator")
        return client.client_id
