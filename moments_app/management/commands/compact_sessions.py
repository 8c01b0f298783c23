from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from moments_app.sessions.sweep import compact_sessions


class Command(BaseCommand):
    help = "Asks for the digest of busy sessions and the settling of quiet ones."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only count.")

    def handle(self, *args: Any, **options: Any) -> str:
        compacted = compact_sessions(dry_run=options["dry_run"])
        return f"to digest: {compacted.digested}, to settle: {compacted.settled}"
