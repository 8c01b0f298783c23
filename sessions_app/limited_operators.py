"""The second lock for operators who are limited to some applications.

What such an operator's page asks of the database is asked by the role `memory_operator`, which sees and changes rows of
these applications alone: a filter that somebody forgot returns nothing of others. Each transaction takes the role as
`database_roles` has it.

Migrations of tables that hold data of people or of applications add `let_operators` to their operations.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from django.db import connection
from django.db.migrations import RunSQL

from sessions_app.database_roles import ADMIN, Role, role_taken, taking

OPERATOR_ROLE = "memory_operator"
# In SQL: the applications that the operator sees, and the operator's login.
APPLICATIONS = "(SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]"
OPERATOR = "NULLIF(current_setting('memory.operator', true), '')::bigint"


def let_operators(table: str, rows: str, *, read: str = "", requests: str = "") -> RunSQL:
    """Return a migration operation that limits such operators to some rows of a table.

    Args:
        table: the table's name in the database.
        rows: SQL that is true for the rows that they see and change.
        read: SQL that is true for further rows, which they see.
        requests: the role of requests, where it reads the table and no policy says which rows.
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
    """Return SQL that is true where a row of another table, which a column names, is one that the operator sees."""
    return f"EXISTS (SELECT FROM {other} seen WHERE seen.id = {table}.{column})"


def of_person(table: str, column: str = "user_id") -> str:
    """Return SQL that is true for rows of people whom the operator sees."""
    return seen(table, "sessions_app_userprofile", column)


# --- taking the role ---


@dataclass(frozen=True)
class Scope(Role):
    """Who works, and where.

    Args:
        operator: primary key of the login.
        applications: primary keys of what it is limited to.
    """

    operator: int
    applications: tuple[int, ...]

    def taken(self) -> str:
        """Return the SQL that takes the role, with its limits, for the rest of a transaction."""
        applications = ",".join(map(str, self.applications))
        return (
            f"{super().taken()}SELECT memory_set('memory.applications', '{applications}'), "
            f"memory_set('memory.operator', '{self.operator}'); "
        )


def is_limited(user: object) -> bool:
    """Tell whether a request's operator is limited to some applications."""
    return getattr(user, "is_limited", False)


@contextmanager
def operating_in(operator: int, applications: Collection[int]) -> Iterator[None]:
    """Run the block as an operator who is limited to some applications.

    Args:
        operator: primary key of the login.
        applications: primary keys of the applications.
    """
    with taking(Scope(OPERATOR_ROLE, int(operator), tuple(sorted(map(int, applications))))):
        yield


@contextmanager
def unlimited() -> Iterator[None]:
    """Run the block past all limits, for what is the site's, or goes by rows that were found within the limits.

    Raises:
        RuntimeError: within a transaction of a limited operator, which has its role.
    """
    role = role_taken()
    if isinstance(role, Scope) and connection.in_atomic_block:
        raise RuntimeError("A transaction keeps the role that it began with.")
    with taking(ADMIN) if role else nullcontext():
        yield


def scope_key() -> str:
    """Return what tells apart what is cached for operators of different applications; blank for all."""
    scope = role_taken()
    return f"in-{'-'.join(map(str, scope.applications))}" if isinstance(scope, Scope) else ""
