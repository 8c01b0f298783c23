"""`drop_extra`: drop the tables of an extra, before it is removed from `EXTRAS`."""

from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from memoryproject.extras import PACKAGE
from memoryproject.settings import CONF


class Command(BaseCommand):
    help = "Drop the tables of an extra with all their rows. Then remove the extra from EXTRAS and restart."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=CONF.extras, help="name of an extra in EXTRAS")
        parser.add_argument("--yes", action="store_true", required=True, help="confirm; this can't be undone")

    def handle(self, *args: Any, **options: Any) -> str:
        name = options["name"]
        [app] = [config for config in apps.get_app_configs() if config.name == f"{PACKAGE}.{name}"]
        call_command("migrate", app.label, "zero", verbosity=0)
        return (
            f"The tables of {name} are dropped. Remove {name} from EXTRAS. Otherwise, migrate creates the tables again."
        )
