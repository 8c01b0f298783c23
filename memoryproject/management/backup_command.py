"""What the commands about a backup's file share."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.backup import BackupError, Manifest, Say


class BackupCommand(BaseCommand):
    """A command that does something with one file and says what the file holds.

    Attributes:
        done: said afterwards, with `file` and `what` it holds.
    """

    done: ClassVar[str]

    @abstractmethod
    def act(self, path: Path, say: Say) -> Manifest:
        """Do it.

        Raises:
            BackupError: it can't be done; the message says why.
        """

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            manifest = self.act(options["file"], self.stdout.write)
        except BackupError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename or options['file']}: {error.strerror}.") from error
        return self.done.format(file=options["file"], what=f"{manifest.rows:,} rows in {len(manifest.tables)} tables")
