from typing import Any

from django.core.management.base import CommandParser

from moments_app.reports.cost import estimate
from sessions_app.database.several_servers import read_as_of_now
from sessions_app.management.base import RefusingCommand, add_application, application_of, person_of


class Command(RefusingCommand):
    help = "Estimate the model calls, tokens and cost of pending memory work."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="USER_ID", help="only the sessions of this person")
        add_application(parser)
        parser.add_argument("--everything", action="store_true", help="estimate all work, including finished work")

    def handle(self, *args: Any, **options: Any) -> str:
        user = person_of(options["user"], application_of(options)) if options["user"] is not None else None
        lines = []
        for part in read_as_of_now(lambda: estimate(user, everything=options["everything"])):
            money = "price unknown" if part.usd is None else f"{part.usd:.2f} USD"
            tokens = f"{part.calls:,} calls, {part.input_tokens:,} tokens in, {part.output_tokens:,} out"
            lines.append(f"{part.purpose} by {part.engine}: {tokens}, {money}")
        return "\n".join(lines)
