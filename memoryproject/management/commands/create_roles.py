"""`manage.py create_roles`: print the SQL that creates the platform's roles, for an administrator to run."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from sessions_app.database.database_roles import administrators_sql


class Command(BaseCommand):
    help = (
        "Print the SQL that creates the platform's database roles and, if named, the logins of web processes and "
        "workers. A database administrator runs it: manage.py create_roles OWNER --web NAME --worker NAME | psql. "
        "Existing roles don't change. The administrator sets the passwords."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("owner", help="role that owns the tables and runs migrate")
        parser.add_argument("--web", default="", metavar="NAME", help="login for WEB_DATABASE_URL")
        parser.add_argument("--worker", default="", metavar="NAME", help="login for WORKER_DATABASE_URL")

    def handle(self, *args: Any, **options: Any) -> str:
        return administrators_sql(options["owner"], web=options["web"], worker=options["worker"])
