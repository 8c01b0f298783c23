"""The roles under which the processes work in the database, and how a transaction takes another than its login's.

None of them owns a table or is a superuser, so row-level security binds them all:

- `memory_web` is a web process as long as it has not said for whom it works: it finds keys and limits, and the profile
  of a person whom it names, and no other row of anybody's.
- `memory_admin` is what it takes for operators' pages, and for what goes by more than one person's rows.
- `memory_worker` is a worker: it sees all rows, but logins.

For one person a web process takes `memory_request` (`row_security.py`), for an operator who is limited to applications
`memory_operator` (`limited_operators.py`). A transaction takes its role by its first message (`first_statement.py`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import IntegrityError, InternalError, ProgrammingError, connection, transaction
from psycopg import sql

from sessions_app import first_statement

WEB_ROLE, ADMIN_ROLE, WORKER_ROLE = "memory_web", "memory_admin", "memory_worker"


@dataclass(frozen=True)
class Role:
    """What a transaction takes.

    Args:
        role: its name.
    """

    role: str

    def taken(self) -> str:
        """Return the SQL that takes it for the rest of a transaction."""
        return f"SET LOCAL ROLE {self.role}; "


WEB, ADMIN = Role(WEB_ROLE), Role(ADMIN_ROLE)

_role: ContextVar[Role | None] = ContextVar("role", default=None)


def role_taken() -> Role | None:
    """Return what transactions take; None for the role of the process's login."""
    return _role.get()


@contextmanager
def taking(role: Role | None) -> Iterator[None]:
    """Let the transactions of the block take a role; None for that of the process's login."""
    outer = _role.set(role)
    try:
        yield
    finally:
        _role.reset(outer)


@contextmanager
def behind_requests() -> Iterator[None]:
    """See all rows in the block, which writes what requests have noted; a worker does so by its login."""
    with taking(None if settings.PROCESS == "worker" else ADMIN):
        yield


class RoleTaken(first_statement.Provider):
    """Takes the role of a transaction by its first statement."""

    def before(self, *, begins: bool) -> str:
        role = _role.get()
        return role.taken() if role and begins else ""


# --- in the database ---

_ROLES = (WEB_ROLE, ADMIN_ROLE, WORKER_ROLE)

# --- what they may ---

LOGINS = "^(auth|otp)_"  # tables of logins and their second factors
# In SQL: the profile that a web process has named, before it takes the role of that person's request.
_NAMED = (
    "user_id = current_setting('memory.named', true) "
    "AND application_id = NULLIF(current_setting('memory.named_in', true), '')::bigint"
)
# What a web process sees while it works for nobody: privileges by table, and which rows.
_OF_WEB = (
    ("sessions_app_userprofile", "SELECT, INSERT, UPDATE (updated_at)", _NAMED),  # to hold a row is to update it
    ("sessions_app_apikey", "SELECT, UPDATE (last_used_at)", "true"),
    ("sessions_app_application", "SELECT", "true"),
    ("sessions_app_dailylimit", "SELECT", "true"),
    ("django_migrations", "SELECT", "true"),
)
FUNCTIONS_ROLE = "memory_functions"  # owns what is in `definer_functions.py`; no process takes it
_FOR_ONE = ("memory_request", "memory_operator")  # of a person, and of an operator who is limited
_MAY_TAKE = {WEB_ROLE: (*_FOR_ONE, ADMIN_ROLE), WORKER_ROLE: ("memory_request",)}
_OWN = "pronamespace = 'public'::regnamespace AND pg_has_role(proowner, 'USAGE')"
_OWN_RELATION = "relnamespace = 'public'::regnamespace AND pg_has_role(relowner, 'USAGE')"

# Each returns statements that are missing. They go over the tables there are, whoever made them, so a migration that
# makes a table need not think of these roles; and what is as it should be is left alone, beside processes at work.
_TABLES = f"""
    SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON %%I TO %%I', relname, role)
    FROM pg_class, unnest(%(whole)s::text[]) role WHERE {_OWN_RELATION} AND relkind = 'r'
    AND (role = '{ADMIN_ROLE}' OR relname !~ '{LOGINS}') AND NOT has_table_privilege(role, pg_class.oid, 'DELETE')
"""  # noqa: S608 (names of our own)
# To vacuum a table takes its owner before PostgreSQL 17.
_MAINTAIN = f"""
    SELECT format('GRANT MAINTAIN ON %%I TO {WORKER_ROLE}', relname)
    FROM pg_class WHERE {_OWN_RELATION} AND relkind = 'r' AND relname !~ '{LOGINS}'
    AND CASE WHEN current_setting('server_version_num')::int >= 170000
        THEN NOT has_table_privilege('{WORKER_ROLE}', pg_class.oid, 'MAINTAIN') ELSE false END
"""  # noqa: S608
_POLICIES = f"""
    SELECT format('CREATE POLICY %%I ON %%I TO %%I USING (true)', role, relname, role)
    FROM pg_class, unnest(%(whole)s::text[]) role WHERE {_OWN_RELATION} AND relrowsecurity
    AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid AND polname = role)
"""  # noqa: S608
_SEQUENCES = f"""
    SELECT format('GRANT USAGE ON SEQUENCE %%I TO %%I', relname, role) FROM pg_class, unnest(%(all)s::text[]) role
    WHERE {_OWN_RELATION} AND relkind = 'S' AND NOT has_sequence_privilege(role, pg_class.oid, 'USAGE')
    AND (role <> '{WEB_ROLE}' OR relname = 'sessions_app_userprofile_id_seq')
"""  # noqa: S608
_FUNCTIONS = f"""
    SELECT format('GRANT EXECUTE ON FUNCTION %%s TO %%I', pg_proc.oid::regprocedure, role)
    FROM pg_proc, unnest(%(all)s::text[]) role WHERE {_OWN} AND prosecdef
    AND (role <> '{WEB_ROLE}' OR proname = 'count_usage') AND NOT has_function_privilege(role, pg_proc.oid, 'EXECUTE')
"""  # noqa: S608
_FOR_WEB = f"""
    SELECT format('GRANT %%s ON %%I TO {WEB_ROLE}; CREATE POLICY {WEB_ROLE} ON %%I TO {WEB_ROLE} USING (%%s)',
        privileges, name, name, rows)
    FROM unnest(%(tables)s::text[], %(privileges)s::text[], %(rows)s::text[]) seen (name, privileges, rows)
    WHERE to_regclass(name) IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = to_regclass(name) AND polname = '{WEB_ROLE}')
"""  # noqa: S608
_MEMBERS = """
    SELECT format('GRANT %%I TO %%I', role, member) FROM unnest(%(taken)s::text[], %(by)s::text[]) taken (role, member)
    WHERE to_regrole(role) IS NOT NULL AND NOT pg_has_role(member, role, 'MEMBER')
"""
_LOGIN = """
    SELECT format('ALTER ROLE %%I LOGIN', rolname) FROM pg_roles
    WHERE %(embedded)s AND rolname = ANY(%(logins)s) AND NOT rolcanlogin
"""


# Roles belong to the whole server. Where `migrate` of another database changes one at the same moment, PostgreSQL
# refuses one of the two, for which the other has done it.
_DONE_BY_ANOTHER = (InternalError, IntegrityError)  # "tuple concurrently updated", or a membership that is there
_PRIVILEGES = (_TABLES, _MAINTAIN, _POLICIES, _SEQUENCES, _FUNCTIONS, _FOR_WEB)
_MEMBERSHIPS = (_MEMBERS, _LOGIN)  # for those who log in by a role


def missing(questions: Sequence[str] = _PRIVILEGES) -> Iterator[str]:
    """Yield the statements after which the roles may do their work; none where they may, or aren't there yet."""
    taken = [(role, member) for member, roles in _MAY_TAKE.items() for role in roles]
    values: dict[str, Any] = {
        "all": list(_ROLES),
        "whole": [ADMIN_ROLE, WORKER_ROLE],
        "logins": [WEB_ROLE, WORKER_ROLE],
        "embedded": settings.DATABASE_IS_EMBEDDED,
        **dict(zip(("tables", "privileges", "rows"), map(list, zip(*_OF_WEB, strict=True)), strict=True)),
        **dict(zip(("taken", "by"), map(list, zip(*taken, strict=True)), strict=True)),
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)", [list(_ROLES)])
        if cursor.fetchone() != (len(_ROLES),):
            return
        for question in questions:
            cursor.execute(question, values)
            yield from [statement for (statement,) in cursor.fetchall()]


def let_roles_work(**_: Any) -> None:
    """Let the roles do their work; memberships only as far as the tables' owner may grant them."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in list(missing()):
            cursor.execute(statement)
    for statement in list(missing(_MEMBERSHIPS)):
        attempt(statement)


def attempt(statement: str) -> None:
    """Execute a statement that the login may lack the right to, or that another `migrate` executes at the same time."""
    with suppress(ProgrammingError, *_DONE_BY_ANOTHER), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def administrators_sql(owner: str, *, web: str = "", worker: str = "") -> str:
    """Return what an administrator runs where the tables' owner may make no roles.

    Args:
        owner: of the tables.
        web, worker: logins to be made for these processes; blank for none.
    """
    all_roles = (*_FOR_ONE, *_ROLES, FUNCTIONS_ROLE)
    statements = [_unless_there(f"CREATE ROLE {role} NOLOGIN NOINHERIT") for role in all_roles]
    statements += [f"GRANT {role} TO {member};" for member, roles in _MAY_TAKE.items() for role in roles]
    statements += [f"GRANT {role} TO {_name(owner)};" for role in all_roles]
    for login, role in ((web, WEB_ROLE), (worker, WORKER_ROLE)):
        if login:
            statements += [_unless_there(f"CREATE ROLE {_name(login)} LOGIN"), f"GRANT {role} TO {_name(login)};"]
    return "\n".join(statements)


def create_roles() -> None:
    """Make the roles that aren't there, as far as the login may; `let_roles_work` makes their memberships."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles")
        there = {name for (name,) in cursor.fetchall()}
    for role in (*_FOR_ONE, *_ROLES, FUNCTIONS_ROLE):
        if role not in there:
            attempt(f"CREATE ROLE {role} NOLOGIN NOINHERIT; GRANT {role} TO CURRENT_USER")


def _unless_there(statement: str) -> str:
    return f"DO $$ BEGIN {statement}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"


def _name(role: str) -> str:
    """Return the name of a role as SQL has it."""
    return sql.Identifier(role).as_string()
