"""The second lock on every person's data: PostgreSQL row-level security.

A request that serves a person runs in `acting_for(user_id, application=…)`: one transaction under the role
`memory_request`, which sees only the rows of that user, and of what belongs to nobody only what is of the application.
So even a query without a filter returns nobody else's data. Workers, commands and the admin connect as the tables'
owner, to which these policies don't apply.

Migrations of tables that hold personal data add `protect(table)` to their operations.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.migrations import RunSQL

from sessions_app.database_roles import SNAPSHOT
from sessions_app.insert import insert_unless_there
from sessions_app.models.user_profile import UserProfile
from sessions_app.rows import columns, first

ROLE = "memory_request"
# The acting user's primary key, in SQL.
ACTING = "NULLIF(current_setting('memory.user_pk', true), '')::bigint"
# The acting application's, which owns the rows of nobody that a request sees.
ACTING_APPLICATION = "NULLIF(current_setting('memory.application', true), '')::bigint"
# SQL for the body of a function that runs as the tables' owner: whether a request calls it, and the person whose rows
# it may then find, whatever its parameter `person` says.
IS_REQUEST = f"current_setting('role') = '{ROLE}'"
PERSON = f"CASE WHEN {IS_REQUEST} THEN {ACTING} ELSE person END"

CREATE_ROLE = RunSQL(
    # Roles belong to the whole server. Another database, a concurrent migration or an administrator may have created
    # this one, and this owner may lack the right to create it. The end tries what matters: taking the role.
    sql=f"""
        DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT {ROLE} TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE {ROLE};
        RESET ROLE;
    """,
    reverse_sql=RunSQL.noop,
)


def protect(
    table: str, column: str = "user_id", privileges: str = "SELECT, INSERT, UPDATE, DELETE", shared: bool = False
) -> RunSQL:
    """Return a migration operation that limits requests to the rows of the acting user.

    Args:
        table: The table's name in the database.
        column: The column that holds the primary key of a row's person.
        privileges: The privileges that requests have on such rows.
        shared: True if rows without a person belong to everybody.
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


def share(table: str, column: str = "user_id") -> RunSQL:
    """Return a migration operation that gives everybody the rows of a protected table that have no person."""
    return RunSQL(
        sql=f"ALTER POLICY acting_user ON {table} USING ({column} = {ACTING} OR {column} IS NULL)",
        reverse_sql=f"ALTER POLICY acting_user ON {table} USING ({column} = {ACTING})",
    )


def text_search(table: str) -> RunSQL:
    """Return a migration operation that creates `search_<table>`, through which requests use the index of words.

    Under row security, PostgreSQL reads an index only for leakproof operators, and `@@` is not leakproof. The function
    runs as the tables' owner and enforces the limit itself: whoever the caller names, a request finds only its acting
    user's rows. It takes the person's primary key, a text of which any word may match, a condition on the rows, and
    the most rows wanted. It returns the ids of the newest rows with their rank between 0 and 1. Words that are in every
    row cost no more than rare ones: the statement is planned with its values, so it walks the newest rows for common
    words and the index for rare ones. `search_words` replaces this function.
    """
    return RunSQL(
        sql=f"""
            CREATE FUNCTION search_{table}(person bigint, words text, wanted_status text, most integer)
            RETURNS TABLE (found bigint, rank real)
            LANGUAGE plpgsql STABLE SECURITY DEFINER
            SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                any_word tsquery := replace(plainto_tsquery('english', words)::text, '&', '|');
                acting bigint := {PERSON};
            BEGIN
                RETURN QUERY SELECT newest.id, ts_rank(newest.search_vector, any_word, 32) FROM (
                    SELECT id, search_vector FROM {table}
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ any_word
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
            REVOKE ALL ON FUNCTION search_{table} FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION search_{table} TO {ROLE};
        """,  # noqa: S608 (names of our own tables)
        reverse_sql=f"DROP FUNCTION search_{table}",
    )


def search_words(table: str) -> RunSQL:
    """Return a migration operation that creates `search_<table>` for stems made by the application (`lexemes.py`).

    The function is like the one of `text_search`, but takes a `tsquery` of all stems that may index the words, and the
    average number of stems per word: `ts_rank` divides by the number of stems, while a text rarely has more than one of
    a word's. The earlier function stays for processes that still run the previous version.
    """
    parameters = "person bigint, words tsquery, forms real, wanted_status text, most integer"
    return RunSQL(
        sql=f"""
            CREATE FUNCTION search_{table}({parameters}) RETURNS TABLE (found bigint, rank real)
            LANGUAGE plpgsql STABLE SECURITY DEFINER
            SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                acting bigint := {PERSON};
            BEGIN
                RETURN QUERY SELECT newest.id, (newest.rank / (newest.rank + 1))::real FROM (
                    SELECT id, ts_rank(search_vector, words) * forms AS rank FROM {table}
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ words
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
            REVOKE ALL ON FUNCTION search_{table}({parameters}) FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION search_{table}({parameters}) TO {ROLE};
        """,  # noqa: S608 (names of our own tables)
        reverse_sql=f"DROP FUNCTION search_{table}({parameters})",
    )


def grant(table: str, privileges: str) -> RunSQL:
    """Return a migration operation that gives requests access to a table that holds nothing personal."""
    return RunSQL(sql=f"GRANT {privileges} ON {table} TO {ROLE}", reverse_sql=f"REVOKE ALL ON {table} FROM {ROLE}")


_PERSON_SQL = "SELECT * FROM sessions_app_userprofile WHERE application_id = %(application)s AND user_id = %(user_id)s"
# A web process sees no profile but the one that it has named before; the second statement is in the same message.
_ENTER_SQL = """
SELECT set_config('memory.named', %(user_id)s, true), set_config('memory.named_in', %(application)s::text, true);
SELECT {columns}, memory_set('memory.user_pk', u.id::text), memory_set('memory.application', u.application_id::text),
    set_config('role', %(role)s, true)
FROM ({person}) u
"""
_ENTER_AS_NOBODY = """
SELECT memory_set('memory.user_pk', ''), memory_set('memory.application', %(application)s::text),
    set_config('role', %(role)s, true)
"""
# The same with the lock of `UserProfile.objects.hold`. A request that waits here while the person is being erased finds
# nobody afterward, and has not taken the role.
_HELD_SQL = f"WITH held AS MATERIALIZED ({_PERSON_SQL} FOR KEY SHARE) SELECT * FROM held"  # noqa: S608


@contextmanager
def acting_for(
    user_id: str | None, *, application: int, create: bool = False, holding: bool = False, snapshot: bool = False
) -> Iterator[UserProfile | None]:
    """Run the block in one transaction that sees and changes only this user's rows.

    Args:
        user_id: The application's id of the person; None for nobody.
        application: The primary key of the application, which names the person and owns what the block sees of nobody.
        create: Create a missing profile. Otherwise the block gets None and sees no person's rows.
        holding: Protect the person from erasure until the block ends, as every writer must.
        snapshot: Let all statements see the same moment in time. This is for long reads, not for writing.
    """
    named = {"application": application, "user_id": user_id, "role": ROLE}
    # Durable, because within another transaction the role would outlive the block.
    with transaction.atomic(durable=True):
        if snapshot:
            connection.cursor().execute(SNAPSHOT)
        user = _enter(named, holding) if user_id is not None else None
        while user is None and user_id is not None and create:
            insert_unless_there(UserProfile(application_id=application, user_id=user_id))
            user = _enter(named, holding)
        if user is None:
            with connection.cursor() as cursor:
                cursor.execute(_ENTER_AS_NOBODY, named)
        yield user


def _enter(named: dict[str, Any], holding: bool) -> UserProfile | None:
    """Find the profile and switch to the request role, in one message."""
    sql = _ENTER_SQL.format(columns=columns(UserProfile, "u"), person=_HELD_SQL if holding else _PERSON_SQL)
    found = first(UserProfile, sql, named)
    return found[0] if found else None


# --- rows that belong to nobody ---

# Set for the rest of a transaction by `let_everybodys_change`.
MAY_CHANGE = "current_setting('memory.everybodys', true) = 'on'"


def read_everybodys(table: str, column: str = "user_id", condition: str = "true") -> RunSQL:
    """Return a migration operation after which requests only read what belongs to everybody in a shared table.

    To change it takes `let_everybodys_change`.

    Args:
        table, column: As in `protect`, which was called with `shared`.
        condition: SQL of such rows that requests see at all.
    """
    own = f"{column} = {ACTING}"
    return RunSQL(
        sql=f"""
            ALTER POLICY acting_user ON {table} USING ({own});
            CREATE POLICY everybodys_read ON {table} FOR SELECT TO {ROLE} USING ({column} IS NULL AND {condition});
            CREATE POLICY everybodys_changed ON {table} TO {ROLE} USING ({column} IS NULL AND {MAY_CHANGE});
        """,
        reverse_sql=f"""
            DROP POLICY everybodys_changed ON {table};
            DROP POLICY everybodys_read ON {table};
            ALTER POLICY acting_user ON {table} USING ({own} OR {column} IS NULL);
        """,
    )


def let_everybodys_change() -> None:
    """Let the rest of a request's transaction change rows that belong to everybody; its key was checked for that."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('memory.everybodys', 'on', true)")


# --- rows that belong to nobody, and to an application ---


def keep_in_application(
    table: str, belongs: str, *, condition: str = "true", changes: bool = True, column: str = "user_id"
) -> RunSQL:
    """Return a migration operation after which requests see of a shared table's rows only those of their application.

    It takes the place of what `read_everybodys` put up; to change such rows still takes `let_everybodys_change`.

    Args:
        table, column: As in `protect`, which was called with `shared`.
        belongs: SQL that is true for the rows of the acting application.
        condition: SQL of such rows that requests see without leave to change them.
        changes: Requests may change such rows at all; else the table was only shared.
    """
    rows = f"{column} IS NULL AND {belongs}"
    own = f"{column} = {ACTING}"
    changing = f"""
            CREATE POLICY everybodys_added ON {table} FOR INSERT TO {ROLE} WITH CHECK ({rows} AND {MAY_CHANGE});
            CREATE POLICY everybodys_changed ON {table} FOR UPDATE TO {ROLE} USING ({rows} AND {MAY_CHANGE});
            CREATE POLICY everybodys_removed ON {table} FOR DELETE TO {ROLE} USING ({rows} AND {MAY_CHANGE});
    """
    before = read_everybodys(table, column, condition) if changes else share(table, column)
    not_yet = before.reverse_sql if changes else f"ALTER POLICY acting_user ON {table} USING ({own})"
    seen = f"({condition} OR {MAY_CHANGE})" if changes else condition
    gone = ("added", "changed", "removed", "read") if changes else ("read",)
    return RunSQL(
        sql=f"""
            {not_yet};
            ALTER POLICY acting_user ON {table} USING ({own});
            CREATE POLICY everybodys_read ON {table} FOR SELECT TO {ROLE} USING ({rows} AND {seen});
            {changing if changes else ""}
        """,
        reverse_sql=f"""
            {"; ".join(f"DROP POLICY everybodys_{name} ON {table}" for name in gone)};
            {before.sql};
        """,
    )
