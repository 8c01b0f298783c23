"""Verify an installation: check that requests can work, and that all data are intact."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django.core.checks import Tags, run_checks
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from moments_app.models import MemoryAtom, Release
from moments_app.provenance.coverage import coverage
from sessions_app.database.database_roles import WEB_ROLE, missing_grants
from sessions_app.database.definer_functions import gaps
from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.models import Archive, Message, Session
from sessions_app.models.application import DEFAULT
from sessions_app.retention import archive_files
from sessions_app.row_security import ROLE, acting_for

OWN = ("sessions_app", "moments_app")


def verify() -> Iterator[str]:
    """Yield a sentence for each problem."""
    checks = (
        migration_problems,
        row_security_problems,
        privilege_problems,
        definer_function_problems,
        request_problems,
        archive_problems,
        turn_problems,
        shared_memory_problems,
    )
    for check in checks:
        yield from check()


def migration_problems() -> list[str]:
    if problem := _partial_upgrade():
        return [problem]
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    missing = [
        f"The migration {migration.app_label}.{migration.name} is not applied. Run manage.py migrate."
        for migration, _ in plan
    ]
    return missing + [
        f"The migration {app}.{name} belongs to a newer version of the platform."
        for app, name in _newer_migrations(executor.loader)
    ]


def schema_mismatch() -> str:
    """Return why the tables don't match this code, or a blank string if they do."""
    if problem := _partial_upgrade():
        return problem
    executor = MigrationExecutor(connection)
    if problem := _newer_database(executor.loader):
        return problem
    is_behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return "Migrations have not been applied. Run manage.py migrate." if is_behind else ""


def refuse_other_versions(**_: Any) -> None:
    """Raise `CommandError` if this version can't upgrade the data. `migrate` calls this before it changes anything."""
    if problem := _partial_upgrade() or _newer_database(MigrationLoader(connection)):
        raise CommandError(problem)


def refuse_failed_checks() -> None:
    """Raise `CommandError` if a system check of the database fails, e.g. if a setting refers to a missing row."""
    found = run_checks(tags=[Tags.database], databases=[connection.alias])
    errors = [f"{error.msg} {error.hint or ''}".strip() for error in found if error.is_serious()]
    if errors:
        raise CommandError("\n".join(errors))


def _partial_upgrade() -> str:
    return partly_applied(MigrationRecorder(connection).applied_migrations())


def partly_applied(recorded: Collection[tuple[str, str]]) -> str:
    """Return an error message if a squashed migration was only partly applied before it was squashed, or "".

    Django would ignore the squashed migration or raise an error. It can't apply the missing part, because the files of
    the original migrations are deleted.
    """
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    there = loader.disk_migrations
    for migration in there.values():
        missing = [key for key in migration.replaces if key not in recorded and key not in there]
        if missing and (applied := [key for key in migration.replaces if key in recorded]):
            (app, last), (_, next_) = applied[-1], missing[0]
            return (
                f"The data are from a version between two releases: {app}.{last} was applied, but {next_} was not. "
                f"Run manage.py migrate of a version that has {next_}, and then of this version."
            )
    return ""


def _newer_database(loader: MigrationLoader) -> str:
    for app, name in _newer_migrations(loader):
        return f"The database belongs to a newer version, with the migration {app}.{name}. Start that version."
    return ""


def _newer_migrations(loader: MigrationLoader) -> list[tuple[str, str]]:
    # Ignore the migrations of apps that are no longer installed.
    return unknown_to_this_version(loader, (key for key in loader.applied_migrations if key[0] in OWN))


def unknown_to_this_version(loader: MigrationLoader, recorded: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the applied migrations that this version doesn't have."""
    known = set(loader.disk_migrations)
    known |= {replaced for migration in loader.disk_migrations.values() for replaced in migration.replaces}
    return sorted(set(recorded) - known)


def row_security_problems() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname, rolname FROM pg_roles JOIN pg_class ON rolname = ANY(%s)
            JOIN pg_attribute ON attrelid = pg_class.oid AND attname = 'user_id'
            WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname ~ %s
            AND has_table_privilege(pg_roles.oid, pg_class.oid, 'SELECT') AND NOT (relrowsecurity
                AND EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid AND pg_roles.oid = ANY(polroles)))
            ORDER BY 1, 2
            """,
            [[ROLE, OPERATOR_ROLE, WEB_ROLE], f"^({'|'.join(OWN)})_"],
        )
        found = cursor.fetchall()
    return [
        f"{name} has no row-level security policy for the role {role}, so the role could read other people's rows. "
        "Run manage.py migrate."
        for name, role in found
    ]


def privilege_problems() -> list[str]:
    return [f"A role lacks a permission that manage.py migrate grants: {statement}." for statement in missing_grants()]


def definer_function_problems() -> list[str]:
    return [str(gap) for gap in gaps()]


def request_problems() -> list[str]:
    """Run a request's transaction without a user, and return its problems. Report only the class of an error."""
    try:
        with acting_for(None, application=DEFAULT):
            if Session.objects.exists() or Message.objects.exists():
                return ["A request without a user can see rows of users."]
    except Exception as error:
        return [f"The database transaction of a request fails: {type(error).__name__}."]
    return []


def archive_problems() -> Iterator[str]:
    for archive in Archive.objects.order_by("pk").iterator():
        try:
            archive_files.check(archive)
        except archive_files.ArchiveError as error:
            yield str(error)


def turn_problems() -> list[str]:
    found = coverage()
    wrong = [f"{found.missing:,} turns are missing." if found.missing else ""]
    wrong.append(f"{found.miscounted:,} sessions have wrong counters." if found.miscounted else "")
    return [sentence for sentence in wrong if sentence]


def shared_memory_problems() -> Iterator[str]:
    """Yield sentences about shared memory that was never released."""
    for release in Release.objects.in_effect().select_related("stream", "atom"):
        if not release.is_signed:
            yield f"The signature of release {release} is invalid, or SECRET_KEY has changed. Revoke the release."
    if number := MemoryAtom.objects.findable().filter(user=None).exclude(source_user=None).count():
        yield f"{number} shared items come from one person and were never released."
