from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.backup import BackupError, restore


class Command(BaseCommand):
    help = "Restores a file that backup wrote, into a database without data."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            manifest = restore(options["file"], self.stdout.write)
        except BackupError as error:
            raise CommandError(str(error)) from error
        rows = sum(table.rows for table in manifest.tables.values())
        return f"{rows:,} rows in {len(manifest.tables)} tables are restored. Now: manage.py verify"
