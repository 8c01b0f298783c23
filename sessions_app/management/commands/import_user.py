from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.processes.import_user import NotAnExport, import_user


class Command(BaseCommand):
    help = (
        "Restores a person from a zip that `export_user` wrote. All of it or nothing; it can be repeated: what is "
        "there already stays as it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--as", dest="user_id", metavar="USER_ID", help="under this name; else under the old one")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            added = import_user(options["file"], user_id=options["user_id"])
        except NotAnExport as error:
            raise CommandError(f"{error} Nothing was imported.") from error
        for name, count in added.items():
            self.stdout.write(f"{name}: {count:,}")
        return f"{added.total():,} rows added."
