"""Django's command line, as `memory-platform`, `python -m memoryproject` and, in the repository, `manage.py`."""

import gc
import os
import sys


def main() -> None:
    gc.set_threshold(10_000)  # startup creates many objects and frees few; collections would take a tenth of its time
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    migrates = sys.argv[1:2] in (["run"], ["migrate"], ["restore"])
    if migrates or sys.argv[1:2] == ["makemigrations"]:  # only these create a database without asking
        os.environ.setdefault("MEMORY_NEW_DATABASE", "1")
    if kind := {"qcluster": "worker", "run": "run"}.get("".join(sys.argv[1:2])):
        os.environ["MEMORY_PROCESS"] = kind  # decides the database login and the log format
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import BaseCommand, execute_from_command_line
    from django.db import ProgrammingError

    BaseCommand.requires_system_checks = []  # they import the code of every page; `check` and the tests run them
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # Report a wrong setting with a sentence that names it, not with a traceback.
        sys.exit(f"Configuration error: {error}")
    except ProgrammingError as error:
        from psycopg.errors import UndefinedColumn, UndefinedTable

        from memoryproject.database.verification import misfit

        if not migrates and isinstance(error.__cause__, UndefinedTable | UndefinedColumn) and (reason := misfit()):
            sys.exit(reason)
        raise


if __name__ == "__main__":
    main()
