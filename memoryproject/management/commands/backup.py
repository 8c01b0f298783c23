from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memoryproject.database.backup import BackupError, Manifest, Report, backup


class BackupCommand(BaseCommand):
    """A command that writes or restores one backup file. It prints `done`, with the placeholders `file` and `what`."""

    done: ClassVar[str]

    @abstractmethod
    def act(self, path: Path, report: Report, passphrase: str) -> Manifest:
        """Write or restore the backup. Raise `BackupError` if that fails."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--passphrase-file",
            type=Path,
            metavar="FILE",
            help="file whose first line is the passphrase that encrypts the key",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            passphrase = _passphrase(options["passphrase_file"])
            manifest = self.act(options["file"], self.stdout.write, passphrase)
        except BackupError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename or options['file']}: {error.strerror}.") from error
        return self.done.format(file=options["file"], what=f"{manifest.rows:,} rows in {len(manifest.tables)} tables")


def _passphrase(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        passphrase = path.read_text(encoding="utf-8").partition("\n")[0]
    except UnicodeDecodeError:
        raise BackupError(f"{path} is not UTF-8 text.") from None
    if not passphrase:
        raise BackupError(f"{path} has no passphrase on its first line.")
    return passphrase


class Command(BackupCommand):
    help = (
        "Write one file with the database, the archived turns, and the secret key if the platform created it in "
        "DATA_DIR."
    )
    done = "{file}: {what}."

    def act(self, path: Path, report: Report, passphrase: str) -> Manifest:
        return backup(path, report, passphrase)
