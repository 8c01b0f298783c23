"""Row-level security for personal data: a second line of defense in case a query lacks a filter.

A request that serves a person runs in `acting_for(user_id, application=…)`. This is one transaction in the role
`memory_request`, which can access only the rows of that person and the shared rows of the application. Workers,
commands and the admin use other roles, which can access all rows.

The migration of a table with personal data needs the operation `protect(table)`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.migrations import RunSQL

from sessions_app.database.sql import columns, insert_if_missing, read_first
from sessions_app.database.transactions import SNAPSHOT
from sessions_app.models.user_profile import UserProfile

ROLE = "memory_request"
# SQL for the primary key of the acting user.
ACTING = "NULLIF(current_setting('memory.user_pk', true), '')::bigint"
# SQL for the primary key of the acting application. Requests see the shared rows of this application.
ACTING_APPLICATION = "NULLIF(current_setting('memory.application', true), '')::bigint"
# SQL for the body of a SECURITY DEFINER function. `IS_REQUEST`: whether the caller is a request. `PERSON`: the person
# whose rows the function may return. In a request, this is always the acting user, not the parameter `person`.
IS_REQUEST = f"current_setting('role') = '{ROLE}'"
PERSON = f"CASE WHEN {IS_REQUEST} THEN {ACTING} ELSE person END"


def protect(
    table: str, column: str = "user_id", privileges: str = "SELECT, INSERT, UPDATE, DELETE", shared: bool = False
) -> RunSQL:
    """Return a migration operation that limits requests to the rows of the acting user.

    Args:
        table: The table's name in the database.
        column: The column with the primary key of a row's person.
        privileges: The privileges that requests have on these rows.
        shared: Whether requests of all people can access rows without a person.
    """
    everybodys = f" OR {column} IS NULL" if shared else ""
    return RunSQL(
        sql=f"""
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON {table} TO {ROLE} USING ({column} = {ACTING}{everybodys});
            GRANT {privileges} ON {table} TO {ROLE};
        """,
        reverse_sql=f"""
            REVOKE ALL ON {table} FROM {ROLE};
            DROP POLICY acting_user ON {table};
            ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
        """,
    )


_PERSON_SQL = "SELECT * FROM sessions_app_userprofile WHERE application_id = %(application)s AND user_id = %(user_id)s"
# A web process can only see the profile in the settings `memory.named` and `memory.named_in`. So the message sets these
# before it selects the profile.
_ENTER_SQL = """
SELECT set_config('memory.named', %(user_id)s, true), set_config('memory.named_in', %(application)s::text, true);
SELECT {columns}, memory_set('memory.user_pk', u.id::text), memory_set('memory.application', u.application_id::text),
    set_config('role', %(role)s, true)
FROM ({person}) u
"""
_ENTER_WITHOUT_PERSON = """
SELECT memory_set('memory.user_pk', ''), memory_set('memory.application', %(application)s::text),
    set_config('role', %(role)s, true)
"""
# The same query, with the lock of `UserProfile.objects.protect`. If it had to wait for an erasure of the person, it
# finds no profile and doesn't switch to the role.
_LOCKED_PERSON_SQL = f"WITH held AS MATERIALIZED ({_PERSON_SQL} FOR KEY SHARE) SELECT * FROM held"  # noqa: S608


@contextmanager
def acting_for(
    user_id: str | None, *, application: int, create: bool = False, for_write: bool = False, snapshot: bool = False
) -> Iterator[UserProfile | None]:
    """Run the block in one transaction that can only read and change this user's rows.

    Args:
        user_id: The id that the application uses for the person, or None.
        application: The primary key of the user's application. The block can also read this application's shared rows.
        create: Whether to create a missing profile. If False and there is no profile, the block receives None and can't
            access any user's rows.
        for_write: Whether to protect the user from erasure until the block ends. Required for writes.
        snapshot: Whether all statements use the same snapshot. Use this only for long reads.
    """
    named = {"application": application, "user_id": user_id, "role": ROLE}
    # This must be the outermost transaction. Inside another transaction, the role would remain set after the block.
    with transaction.atomic(durable=True):
        if snapshot:
            connection.cursor().execute(SNAPSHOT)
        user = _enter(named, for_write) if user_id is not None else None
        while user is None and user_id is not None and create:
            insert_if_missing(UserProfile(application_id=application, user_id=user_id))
            user = _enter(named, for_write)
        if user is None:
            with connection.cursor() as cursor:
                cursor.execute(_ENTER_WITHOUT_PERSON, named)
        yield user


def _enter(named: dict[str, Any], for_write: bool) -> UserProfile | None:
    sql = _ENTER_SQL.format(columns=columns(UserProfile, "u"), person=_LOCKED_PERSON_SQL if for_write else _PERSON_SQL)
    found = read_first(UserProfile, sql, named)
    return found[0] if found else None


# --- shared rows of all people ---

# SQL for the setting that `allow_shared_changes` turns on for the rest of a transaction.
MAY_CHANGE = "current_setting('memory.everybodys', true) = 'on'"


def allow_shared_changes() -> None:
    """Let a request change shared rows for the rest of its transaction. The caller must check the key's scope."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('memory.everybodys', 'on', true)")
