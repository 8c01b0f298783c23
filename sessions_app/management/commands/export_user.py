import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.management.base import RefusingCommand, add_application, application_of
from sessions_app.models import UserProfile
from sessions_app.people.export import export_user


class Command(RefusingCommand):
    help = "Write all data about a person to a zip file of JSON lines. `import_user` restores it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user_id")
        add_application(parser)
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        path: Path = options["file"]
        application = application_of(options)
        unfinished = Path(f"{path}.{os.getpid()}.part")
        try:
            with unfinished.open("xb") as file:
                counts = export_user(options["user_id"], file, application=application)
            unfinished.replace(path)
        except UserProfile.DoesNotExist as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}.") from error
        finally:
            with suppress(OSError):
                unfinished.unlink()
        for name, count in counts.items():
            self.stdout.write(f"{name}: {count:,}")
        return f"Exported to {path}."
