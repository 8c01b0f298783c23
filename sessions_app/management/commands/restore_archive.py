from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.management.base import RefusingCommand, add_application, application_of
from sessions_app.models import Session
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.restore import restore_archive


class Command(RefusingCommand):
    unchanged = "Nothing was changed."
    help = "Put archived turns of a session back into the transcript, and remove their files."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user_id")
        parser.add_argument("session_id")
        add_application(parser)
        parser.add_argument("--month", help="month to restore, as YYYY-MM; default: all months")

    def handle(self, *args: Any, **options: Any) -> str:
        month = _month(options["month"]) if options["month"] is not None else None
        named = Session.objects.named(options["session_id"], options["user_id"], application_of(options))
        session = named.first()
        if session is None:
            raise CommandError(f"{options['user_id']} has no session {options['session_id']}.")
        try:
            restored = restore_archive(session, actor="command:restore_archive", month=month)
        except ArchiveError as error:
            raise CommandError(f"{error} {self.unchanged}") from error
        return f"{restored.turns} turns restored from {restored.files} files"


def _month(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise CommandError(f"--month must look like 2026-03, not {text!r}.") from None
