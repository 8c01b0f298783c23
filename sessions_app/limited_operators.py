"""Row-level security for operators who are limited to some applications.

On pages of such an operator, queries run in the role `memory_operator`, which can only read and change rows of these
applications. `database/transactions.py` switches to the role. The migration of a table with data of people or
applications needs the operation `let_operators`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from django.db import connection
from django.db.migrations import RunSQL

from sessions_app.database.transactions import ADMIN, Role, current_role, using_role

OPERATOR_ROLE = "memory_operator"
# SQL for the primary keys of the operator's applications, and of the operator's login.
APPLICATIONS = "(SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]"
OPERATOR = "NULLIF(current_setting('memory.operator', true), '')::bigint"


def let_operators(table: str, rows: str, *, read: str = "", requests: str = "") -> RunSQL:
    """Return a migration operation that gives limited operators access to some rows of a table.

    Args:
        table: The table's name in the database.
        rows: An SQL condition for the rows that they may see and change.
        read: An SQL condition for additional rows that they may see.
        requests: The role of requests, if the table has no policy for it. The role keeps access to all rows.
    """
    reading = f"CREATE POLICY operators_read ON {table} FOR SELECT TO {OPERATOR_ROLE} USING ({read});" if read else ""
    as_before = f"CREATE POLICY acting_user ON {table} TO {requests} USING (true);" if requests else ""
    return RunSQL(
        sql=f"""
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON {table} TO {OPERATOR_ROLE} USING ({rows});
            {reading}
            {as_before}
        """,
        reverse_sql=f"""
            DROP POLICY operators ON {table};
            DROP POLICY IF EXISTS operators_read ON {table};
            {f"DROP POLICY acting_user ON {table};" if requests else ""}
            DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = '{table}'::regclass) THEN
                ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
            END IF; END $$;
        """,
    )


def seen(table: str, other: str, column: str) -> str:
    """Return an SQL condition for rows that refer to a row of another table that the operator can read."""
    return f"EXISTS (SELECT FROM {other} seen WHERE seen.id = {table}.{column})"


def of_person(table: str, column: str = "user_id") -> str:
    return seen(table, "sessions_app_userprofile", column)


# --- switching to the role ---


@dataclass(frozen=True)
class Scope(Role):
    """The role of a limited operator. `operator` and `applications` are primary keys."""

    operator: int
    applications: tuple[int, ...]

    def set_sql(self) -> str:
        """Return the SQL that sets the role and its limits for the rest of a transaction."""
        applications = ",".join(map(str, self.applications))
        return (
            f"{super().set_sql()}SELECT memory_set('memory.applications', '{applications}'), "
            f"memory_set('memory.operator', '{self.operator}'); "
        )


def is_limited(user: object) -> bool:
    return getattr(user, "is_limited", False)


@contextmanager
def acting_as_limited_operator(operator: int, applications: Collection[int]) -> Iterator[None]:
    """Run the block as an operator who is limited to these applications. The arguments are primary keys."""
    with using_role(Scope(OPERATOR_ROLE, int(operator), tuple(sorted(map(int, applications))))):
        yield


@contextmanager
def unlimited() -> Iterator[None]:
    """Run the block without the operator's limits.

    Use this only for site-wide data, or for rows found within the limits. Raise RuntimeError if a transaction of a
    limited operator is open, because its role can't be changed.
    """
    role = current_role()
    if isinstance(role, Scope) and connection.in_atomic_block:
        raise RuntimeError("A transaction can't change its role.")
    with using_role(ADMIN) if role else nullcontext():
        yield


def scope_key() -> str:
    """Return a cache key that operators of the same applications share. Blank for operators without limits."""
    scope = current_role()
    return f"in-{'-'.join(map(str, scope.applications))}" if isinstance(scope, Scope) else ""
