from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memory_extras.scale.distribution import NotDistributable, execute, steps


class Command(BaseCommand):
    help = (
        "Distribute turns and their vectors over the servers of a Citus cluster, by person. If the command is "
        "interrupted, run it again: it continues. Stop web processes and workers first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only print the SQL")

    def handle(self, *args: Any, **options: Any) -> str:
        is_dry, done = options["dry_run"], False
        try:
            for step in steps():
                self.stdout.write(step.as_sql() if is_dry else step.what)
                if not is_dry:
                    execute(step)
                done = True
        except NotDistributable as error:
            raise CommandError(str(error)) from error
        if not done:
            return "Nothing to do."
        return "Nothing was changed." if is_dry else "Turns are distributed. Start web processes and workers."
