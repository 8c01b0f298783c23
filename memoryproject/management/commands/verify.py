from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.database.backup import BackupError, compare
from memoryproject.database.verification import verify


class Command(BaseCommand):
    help = "Check tables, policies, archives and turns for damage. With FILE, compare a backup with the database."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, nargs="?", help="backup to compare with")

    def handle(self, *args: Any, **options: Any) -> str:
        wrong = list(verify())
        try:
            wrong += compare(options["file"]) if options["file"] else []
        except BackupError as error:
            wrong.append(str(error))
        if wrong:
            raise CommandError("\n".join(wrong))
        return "No problems found."
