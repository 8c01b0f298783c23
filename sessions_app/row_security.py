"""The second lock on every person's data: PostgreSQL row-level security.

A request that serves a person runs in `acting_for(user_id)`: one transaction under the role `memory_request`, which
sees only rows of the user named in it. So a query whose author forgot to filter returns nothing of somebody else's.
Workers, commands and the admin connect as the tables' owner, to which these policies don't apply.

Migrations of tables that hold personal data add `protect(table)` to their operations.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.migrations import RunSQL

from sessions_app.insert import insert_unless_there
from sessions_app.models.user_profile import UserProfile

ROLE = "memory_request"
# The acting user's primary key, in SQL.
ACTING = "NULLIF(current_setting('memory.user_pk', true), '')::bigint"
# In the body of a function that runs as the tables' owner: whether a request calls it, and whose rows it may find then,
# whoever its parameter `person` names.
IS_REQUEST = f"current_setting('role') = '{ROLE}'"
PERSON = f"CASE WHEN {IS_REQUEST} THEN {ACTING} ELSE person END"

CREATE_ROLE = RunSQL(
    # Roles belong to the whole server: another database on it, a migration running beside this, or an administrator
    # may have made it; then this owner may lack the right to. What counts is tried at the end: that it can be taken.
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
    """A migration operation: requests reach only rows of `table` whose `column` is the acting user's primary key.

    Args:
        table, column: by their names in the database.
        privileges: that requests have on such rows.
        shared: rows without a person are everybody's.
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
    """A migration operation: rows of a protected table without a person become everybody's."""
    return RunSQL(
        sql=f"ALTER POLICY acting_user ON {table} USING ({column} = {ACTING} OR {column} IS NULL)",
        reverse_sql=f"ALTER POLICY acting_user ON {table} USING ({column} = {ACTING})",
    )


def text_search(table: str) -> RunSQL:
    """A migration operation: the function `search_<table>`, by which requests use the table's index of words.

    Under row security PostgreSQL reads an index only for operators that are leakproof; `@@` is not one. The function
    runs as the tables' owner and holds the line itself: whoever the caller names, a request finds its acting user's
    rows. It takes the person's primary key, a text of which any word may match, a condition on the rows, and the most
    rows wanted; it returns the ids of the newest with their rank between 0 and 1. Words that are in every row cost no
    more than rare ones: planned with its values, the statement walks the newest rows for the one and the words' index
    for the other. `search_words` makes it anew.
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
    """A migration operation: `search_<table>` for words that the application looked up (see `lexemes.py`).

    It is like that of `text_search`, but takes a `tsquery` of all that the words may be indexed under, and how many of
    these a word has on average: `ts_rank` divides by all of them, and a text has hardly more than one of a word. The
    function of before stays for processes of the version before.
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
    """A migration operation: lets requests use a table that holds nothing personal."""
    return RunSQL(sql=f"GRANT {privileges} ON {table} TO {ROLE}", reverse_sql=f"REVOKE ALL ON {table} FROM {ROLE}")


# By hand, as every request begins with it and the ORM takes longer to write it down than PostgreSQL to do it.
_PERSON_SQL = "SELECT * FROM sessions_app_userprofile WHERE user_id = %(user_id)s"
_ENTER_SQL = """
SELECT u.*, set_config('memory.user_pk', u.id::text, true) AS acting, set_config('role', %(role)s, true) AS taken
FROM ({person}) u
"""
_ENTER = _ENTER_SQL.format(person=_PERSON_SQL)
# The same with the lock of `UserProfile.objects.hold`. One who waits here while the person is being erased finds nobody
# afterwards, and has not taken the role.
_HELD_SQL = f"WITH held AS MATERIALIZED ({_PERSON_SQL} FOR KEY SHARE) SELECT * FROM held"  # noqa: S608
_ENTER_HOLDING = _ENTER_SQL.format(person=_HELD_SQL)


@contextmanager
def acting_for(
    user_id: str | None, *, create: bool = False, holding: bool = False, snapshot: bool = False
) -> Iterator[UserProfile | None]:
    """Runs its block in one transaction that sees and changes only this user's rows.

    Args:
        user_id: as the application names the person; None for nobody.
        create: make the profile when there is none; else the block gets None and sees no person's rows.
        holding: keep the person from being erased until the block ends, as whoever writes for them must.
        snapshot: all statements see the same moment in time; for long reads, not for writing.
    """
    # Durable: within another transaction the role would outlive the block.
    with transaction.atomic(durable=True):
        if snapshot:
            connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        user = _enter(user_id, holding) if user_id is not None else None
        while user is None and user_id is not None and create:
            insert_unless_there(UserProfile(user_id=user_id))
            user = _enter(user_id, holding)
        if user is None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT set_config('memory.user_pk', '', true), set_config('role', '{ROLE}', true)")
        yield user


def _enter(user_id: str, holding: bool) -> UserProfile | None:
    """Finds the profile and drops to the request role, in one statement."""
    sql = _ENTER_HOLDING if holding else _ENTER
    return next(iter(UserProfile.objects.raw(sql, {"user_id": user_id, "role": ROLE})), None)
