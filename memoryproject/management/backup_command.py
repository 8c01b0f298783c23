"""What the commands about a backup's file share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.backup import BackupError, Manifest, Say


class BackupCommand(BaseCommand):
    """A command that does something with one file and says what the file holds.

    Attributes:
        act: does it.
        done: said afterwards, with `file` and `what` it holds.
    """

    act: ClassVar[Callable[[Path, Say], Manifest]]
    done: ClassVar[str]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            manifest = type(self).act(options["file"], self.stdout.write)
        except BackupError as error:
            raise CommandError(str(error)) from error
        return self.done.format(file=options["file"], what=f"{manifest.rows:,} rows in {len(manifest.tables)} tables")
