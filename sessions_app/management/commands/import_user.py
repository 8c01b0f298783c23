from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.management.base import RefusingCommand, add_application, application_of, public_id
from sessions_app.people.import_user import import_user


class Command(RefusingCommand):
    unchanged = "Nothing was imported."
    help = (
        "Restore a person from a zip file that `export_user` wrote, completely or not at all. You can repeat the "
        "import: existing rows don't change."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--as", dest="user_id", metavar="USER_ID", help="new user_id; default: the user_id in the file"
        )
        add_application(parser)

    def handle(self, *args: Any, **options: Any) -> str:
        user_id = None if options["user_id"] is None else public_id("--as", options["user_id"])
        added = import_user(options["file"], application=application_of(options), user_id=user_id)
        for name, count in added.items():
            self.stdout.write(f"{name}: {count:,}")
        return f"{added.total():,} rows added."
