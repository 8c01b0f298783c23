"""Django's command line, as `memory-platform`, `python -m memoryproject` and, in the repository, `manage.py`."""

import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    # Startup creates many objects and frees few; at the default threshold, garbage collection takes a tenth of the
    # startup time.
    gc.set_threshold(10_000)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    migrates = sys.argv[1:2] in (["run"], ["migrate"], ["restore"])
    if migrates or sys.argv[1:2] == ["makemigrations"]:  # only these commands create a database without asking
        os.environ.setdefault("MEMORY_NEW_DATABASE", "1")
    if kind := {"qcluster": "worker", "run": "run"}.get("".join(sys.argv[1:2])):
        os.environ["MEMORY_PROCESS"] = kind  # determines the database login and the log format
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import BaseCommand, execute_from_command_line
    from django.db import OperationalError, ProgrammingError

    # System checks import the code of every page, so skip them. The command `check` and the tests still run them.
    BaseCommand.requires_system_checks = []
    try:
        with suppress(ImproperlyConfigured):  # the command reports it
            warn_about_settings()
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # Report an invalid setting in one sentence, without a traceback.
        sys.exit(f"Configuration error: {error}")
    except ProgrammingError as error:
        from psycopg.errors import UndefinedColumn, UndefinedTable

        from memoryproject.database.verification import schema_mismatch

        if (
            not migrates
            and isinstance(error.__cause__, UndefinedTable | UndefinedColumn)
            and (reason := schema_mismatch())
        ):
            sys.exit(reason)
        raise
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) or "--traceback" in sys.argv:
            raise  # the database rejected a statement
        sys.exit(f"Can't connect to the database. Check the database server and DATABASE_URL. Error: {error}")


def warn_about_settings() -> None:
    """Print a warning about each variable that looks like a setting but has no effect."""
    from django.conf import settings

    from memoryproject import conf

    settings.CONF  # noqa: B018 (reads `.env` into the environment)
    for message in conf.removed(os.environ) + conf.misspelled(os.environ):
        sys.stderr.write(f"Warning: A variable in the environment or in .env has no effect. {message}\n")


if __name__ == "__main__":
    main()
