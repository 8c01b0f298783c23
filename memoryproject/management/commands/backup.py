from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.backup import BackupError, backup


class Command(BaseCommand):
    help = "Writes everything into one file: rows, archived turns, and the key that was made in DATA_DIR."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            manifest = backup(options["file"], self.stdout.write)
        except BackupError as error:
            raise CommandError(str(error)) from error
        rows = sum(table.rows for table in manifest.tables.values())
        return f"{options['file']}: {rows:,} rows in {len(manifest.tables)} tables."
