from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from sessions_app.management.base import RefusingCommand, add_application, application_of, name_of, public_id
from sessions_app.models import ApiKey, UserProfile


class Command(RefusingCommand):
    help = "Create an API key. The last line printed is the key itself; it can't be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the key")
        parser.add_argument("--user", help="limit the key to this user_id; without it, the key acts for any user")
        add_application(parser)
        parser.add_argument("--scope", choices=ApiKey.Scope.values, default=ApiKey.Scope.WRITE)
        parser.add_argument("--expires", type=int, metavar="DAYS", help="number of days that the key is valid")

    def handle(self, *args: Any, **options: Any) -> str:
        days = options["expires"]
        if days is not None and not 1 <= days <= 36_500:
            raise CommandError("--expires must be from 1 to 36500 days.")
        application = application_of(options)
        name, user = name_of(options), None
        if options["user"] is not None:
            user = UserProfile.objects.ensure(public_id("--user", options["user"]), application)
        key, text = ApiKey.objects.issue(
            name,
            user=user,
            application=application,
            scope=options["scope"],
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
        self.stdout.write(f"Key {key} with scope {key.scope} for {user or 'any user'}:")
        return text
