from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from moments_app.provenance.coverage import coverage, queue_builds, uncovered
from sessions_app.database.several_servers import read_as_of_now
from sessions_app.management.base import RefusingCommand, add_application, application_of, person_of


class Command(RefusingCommand):
    help = "Check that every turn is in memory or waits for a job. Fails if a turn is missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="USER_ID", help="only this person")
        add_application(parser)
        parser.add_argument(
            "--queue",
            action="store_true",
            help="queue builds of moments for turns that are missing or whose job failed",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        application = application_of(options)
        user = person_of(options["user"], application) if options["user"] is not None else None
        if options["queue"]:
            return f"queued: {len(queue_builds(user, requested_by='coverage'))}"
        found, sessions = read_as_of_now(lambda: (coverage(user), uncovered(user)))
        lines = [
            f"{name.replace('_', ' ')}: {'none' if value is None else value}" for name, value in asdict(found).items()
        ]
        lines += [f"see session {session.session_id} of {session.user.user_id}" for session in sessions]
        if not found.is_whole:
            raise CommandError("\n".join([*lines, "Some turns are missing from memory, or counters are wrong."]))
        return "\n".join(lines)
