import atexit
import gc
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.admin import autodiscover
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.db import OperationalError, connection
from django.db.migrations import Migration
from django.db.models.signals import post_migrate


class MemoryProjectConfig(AppConfig):
    name = "memoryproject"
    default = True

    def ready(self) -> None:
        from axes.signals import user_locked_out
        from django.contrib.auth.signals import user_logged_in

        from memoryproject import telemetry
        from memoryproject.admin_menu import name_models
        from memoryproject.logins import log_lockout, record_login_time, register_groups
        from memoryproject.schedules import register_schedules
        from sessions_app.database.database_roles import grant_privileges
        from sessions_app.database.definer_functions import close_gaps

        # At exit, Python searches all objects for reference cycles, which takes a third of a short command's CPU time.
        # It skips frozen objects.
        atexit.register(gc.freeze)
        user_locked_out.connect(log_lockout)
        user_logged_in.connect(record_login_time)
        # The senders are the apps that own the tables, because Django doesn't send this signal for an app without
        # models.
        post_migrate.connect(register_schedules, sender=apps.get_app_config("django_q"))
        post_migrate.connect(register_groups, sender=apps.get_app_config("auth"))
        post_migrate.connect(grant_privileges, sender=apps.get_app_config("moments_app"))  # after the last migration
        post_migrate.connect(close_gaps, sender=apps.get_app_config("moments_app"))
        post_migrate.connect(finish_upgrade, sender=apps.get_app_config("moments_app"))
        register(own_logins, Tags.security, deploy=True)
        register(definer_functions, Tags.security, deploy=True)
        register(unknown_tables, Tags.database)
        name_models()
        telemetry.check()
        _check_archive_storage()


class AdminConfig(SimpleAdminConfig):
    """Django's admin. Its pages are half of the code, so they are imported only by `urls.py` and the checks."""

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(**named: Any) -> list[CheckMessage]:
    autodiscover()
    return check_admin_app(**named)


def finish_upgrade(plan: Sequence[tuple[Migration, bool]] = (), **_: Any) -> None:
    """Queue the jobs that upgrade data of an earlier release. Workers run them while the site serves."""
    if any(is_reversed for _migration, is_reversed in plan):
        return
    from moments_app.recall.embed import EmbedAll
    from moments_app.recall.index_words import IndexArchived

    IndexArchived().sweep()
    EmbedAll().sweep()


def own_logins(**_: Any) -> list[CheckMessage]:
    """Warn if web processes log in as the owner of the tables, which bypasses row-level security."""
    if settings.DATABASE_IS_EMBEDDED or settings.WEB_HAS_LOGIN:
        return []
    hint = "Create a login in the role memory_web for them (docs/operations.md, Deployment)."
    message = "WEB_DATABASE_URL is not set, so web processes log in as the owner of the tables."
    return [Warning(message, hint=hint, id="memoryproject.W001")]


def definer_functions(**_: Any) -> list[CheckMessage]:
    """Warn about `SECURITY DEFINER` functions and privileges that `migrate` could not secure."""
    from sessions_app.database.definer_functions import gaps

    if settings.DATABASE_IS_EMBEDDED:  # the login of an embedded database has all privileges
        return []
    try:
        return [Warning(gap.what, hint=gap.remedy, id="memoryproject.W002") for gap in gaps()]
    except OperationalError as error:
        message = f"The permissions of the database functions could not be checked: {type(error).__name__}."
        return [Warning(message, hint="Run the check again when the database responds.", id="memoryproject.W003")]


_REFERRING = """
    SELECT DISTINCT referring.relname FROM pg_constraint
    JOIN pg_class referring ON referring.oid = conrelid JOIN pg_class ON pg_class.oid = confrelid
    WHERE contype = 'f' AND pg_class.relname = ANY (%s)
"""


def unknown_tables(databases: Sequence[str] | None, **_: Any) -> list[CheckMessage]:
    """Warn about tables outside the installed apps that refer to ours. Their rows would prevent erasures."""
    if not databases:
        return []
    with connection.cursor() as cursor:
        known = connection.introspection.django_table_names()
        cursor.execute(_REFERRING, [known])
        unknown = sorted({table for (table,) in cursor.fetchall()} - set(known))
    if not unknown:
        return []
    message = f"No installed app has these tables: {', '.join(unknown)}. A person with rows in them can't be erased."
    hint = "If they belong to an extra, add it to EXTRAS, or drop them (docs/operations.md, Extras)."
    return [Warning(message, hint=hint, id="memoryproject.W005")]


def _check_archive_storage() -> None:
    """Open the archive storage, so that no process starts with invalid settings for it."""
    try:
        storages["archive"]
    except Exception as error:
        raise ImproperlyConfigured(f"{settings.RETENTION.storage_setting}: {error}") from error
