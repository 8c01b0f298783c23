from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.backup import BackupError, compare
from memoryproject.verification import verify


class Command(BaseCommand):
    help = "Says whether everything is whole: tables, policies, archives, turns; with FILE, whether it has all of that."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, nargs="?", help="A backup to compare with.")

    def handle(self, *args: Any, **options: Any) -> str:
        wrong = list(verify())
        try:
            wrong += compare(options["file"]) if options["file"] else []
        except BackupError as error:
            wrong.append(str(error))
        if wrong:
            raise CommandError("\n".join(wrong))
        return "Everything is whole."
