from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.models import Application


class Command(BaseCommand):
    help = "Create an application: a tenant with its own people, agents, keys and prompts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name: lower-case letters, digits and hyphens")

    def handle(self, *args: Any, **options: Any) -> str:
        application = Application(name=options["name"])
        try:
            application.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        application.save()
        return f"Created {application}. To create a key: manage.py create_api_key NAME --application {application}"
