from typing import Any

from django.core.management.base import CommandParser

from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.interfaces.mcp.server import server
from sessions_app.management.base import RefusingCommand, add_application, application_of, person_of, public_id
from sessions_app.models import ApiKey
from sessions_app.models.session import DEFAULT_AGENT


class Command(RefusingCommand):
    help = "Serve one person's memory to an assistant on this machine with the Model Context Protocol over stdio."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="user_id of the person")
        add_application(parser)
        parser.add_argument("--agent", default=DEFAULT_AGENT, help="agent_id of the assistant")

    def handle(self, *args: Any, **options: Any) -> None:
        application = application_of(options)
        person = person_of(options["user"], application)
        agent_id = public_id("--agent", options["agent"])
        CURRENT.set(Connection(person.user_id, agent_id, "command:mcp", ApiKey.Scope.WRITE, application))
        server.run("stdio")
