from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.management.base import RefusingCommand, add_application, application_of, person_of
from sessions_app.models import UserProfile
from sessions_app.people.erase import RowsRemain, count_erasable_rows, erase_user


class Command(RefusingCommand):
    help = "Erase all data about a person. Shows the number of rows and asks first. This can't be undone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user_id")
        add_application(parser)
        parser.add_argument("--dry-run", action="store_true", help="only count the rows")
        parser.add_argument("--yes", action="store_true", help="erase without asking")

    def handle(self, *args: Any, **options: Any) -> str:
        user_id, application = options["user_id"], application_of(options)
        for name, count in count_erasable_rows(person_of(user_id, application)).items():
            self.stdout.write(f"{name}: {count:,}")
        if options["dry_run"]:
            return "Nothing was erased."
        if not options["yes"] and _ask_for_confirmation() != user_id:
            raise CommandError("The user_id doesn't match. Nothing was erased.")
        try:
            erased = erase_user(user_id, application=application, actor="operator:command")
        except (UserProfile.DoesNotExist, RowsRemain) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"Searched {len(erased.left)} kinds of data for the person again: {erased.left.total()} rows."
        )
        for name, count in erased.kept.items():
            self.stdout.write(f"Kept, without names or texts: {name}: {count:,}")
        if erased.has_files_left:
            raise CommandError(
                f"All {erased.rows.total():,} rows are erased, but the archive storage failed, so some archive files "
                "still exist. A job will try to delete them again."
            )
        return (
            f"Erased {erased.rows.total():,} rows; nothing is left. Id of the erasure in the event log: "
            f"{erased.erasure_id}"
        )


def _ask_for_confirmation() -> str:
    """Ask the operator to type the user_id. Raise CommandError if there is no terminal."""
    try:
        return input("Type the user_id again to erase everything: ")
    except EOFError:
        raise CommandError(
            "The user_id was not confirmed. Nothing was erased. To erase without asking, use --yes."
        ) from None
