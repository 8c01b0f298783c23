from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.retention.retain import retain


class Command(BaseCommand):
    help = "Archive or delete turns older than RETENTION__TRANSCRIPT_DAYS that memory covers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="find and count the same turns, and change nothing")

    def handle(self, *args: Any, **options: Any) -> str:
        done = retain(dry_run=options["dry_run"])
        sentence = (
            f"{done.sessions} sessions: {done.archived_turns} turns archived, {done.archived_bytes} bytes; "
            f"{done.deleted_turns} turns deleted; kept: {done.overdue_sessions} sessions not covered by memory yet, "
            f"{done.held_sessions} under legal hold; {done.seconds:.1f} s"
        )
        if done.failed_sessions:
            reasons = " ".join(done.failures)
            raise CommandError(f"{sentence}. {done.failed_sessions} sessions failed and are as they were: {reasons}")
        return sentence
