"""The database roles of the processes, and their privileges.

None of the roles owns a table or is a superuser, so row-level security applies to all:

- `memory_web` is the role of a web process until it knows the person that a request acts for. It reads keys and limits,
  and the one profile that the process specifies, but no other personal data.
- `memory_admin` is for operators' pages, and for requests that concern several people.
- `memory_worker` is the role of a worker. It can access all rows except logins.

For one person, a web process switches to `memory_request` (`row_security.py`). For an operator who is limited to some
applications, it switches to `memory_operator` (`limited_operators.py`). The first message of a transaction sets the
role (`transactions.py`).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import IntegrityError, InternalError, ProgrammingError, connection, transaction
from psycopg import sql

from sessions_app.database.transactions import ADMIN, WEB

WEB_ROLE, ADMIN_ROLE, WORKER_ROLE = WEB.role, ADMIN.role, "memory_worker"
_ROLES = (WEB_ROLE, ADMIN_ROLE, WORKER_ROLE)

LOGINS = "^(auth|otp)_"  # tables of logins and their second factors
# SQL condition for the profile that a web process has named in the transaction's settings. The process reads this
# profile before it acts for the person.
_NAMED = (
    "user_id = current_setting('memory.named', true) "
    "AND application_id = NULLIF(current_setting('memory.named_in', true), '')::bigint"
)
# The privileges of a web process before it knows the person: table, privileges, and visible rows.
_WEB_PRIVILEGES = (
    ("sessions_app_userprofile", "SELECT, INSERT, UPDATE (updated_at)", _NAMED),  # locking a row requires UPDATE
    ("sessions_app_apikey", "SELECT, UPDATE (last_used_at)", "true"),
    ("sessions_app_application", "SELECT", "true"),
    ("sessions_app_dailylimit", "SELECT", "true"),
    ("django_migrations", "SELECT", "true"),
)
FUNCTIONS_ROLE = "memory_functions"  # owns the functions of `definer_functions.py`; no process uses it
_FOR_ONE = ("memory_request", "memory_operator")  # for requests of one person, and for limited operators
_CAN_SWITCH_TO = {WEB_ROLE: (*_FOR_ONE, ADMIN_ROLE), WORKER_ROLE: ("memory_request",)}
_OWN = "pronamespace = 'public'::regnamespace AND pg_has_role(proowner, 'USAGE')"
_OWN_RELATION = "relnamespace = 'public'::regnamespace AND pg_has_role(relowner, 'USAGE')"

# Each query returns the grants that existing tables lack, so migrations don't need to grant anything. Existing grants
# are not repeated, because this would disturb running processes.
_TABLES = f"""
    SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON %%I TO %%I', relname, role)
    FROM pg_class, unnest(%(whole)s::text[]) role WHERE {_OWN_RELATION} AND relkind = 'r'
    AND (role = '{ADMIN_ROLE}' OR relname !~ '{LOGINS}') AND NOT has_table_privilege(role, pg_class.oid, 'DELETE')
"""  # noqa: S608 (names of our own)
# From PostgreSQL 17 on, a role that doesn't own a table can be permitted to vacuum it.
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


# All databases of a server share its roles. If two `migrate` commands change a role at the same time, PostgreSQL
# rejects one of the changes. The other one is sufficient.
_CONCURRENT_CHANGE = (InternalError, IntegrityError)  # "tuple concurrently updated", or an existing membership
_PRIVILEGES = (_TABLES, _MAINTAIN, _POLICIES, _SEQUENCES, _FUNCTIONS, _FOR_WEB)
_MEMBERSHIPS = (_MEMBERS, _LOGIN)  # for roles that log in


def missing_grants(questions: Sequence[str] = _PRIVILEGES) -> Iterator[str]:
    """Yield the statements that grant missing privileges, or nothing if the roles don't exist yet."""
    taken = [(role, member) for member, roles in _CAN_SWITCH_TO.items() for role in roles]
    values: dict[str, Any] = {
        "all": list(_ROLES),
        "whole": [ADMIN_ROLE, WORKER_ROLE],
        "logins": [WEB_ROLE, WORKER_ROLE],
        "embedded": settings.DATABASE_IS_EMBEDDED,
        **dict(zip(("tables", "privileges", "rows"), map(list, zip(*_WEB_PRIVILEGES, strict=True)), strict=True)),
        **dict(zip(("taken", "by"), map(list, zip(*taken, strict=True)), strict=True)),
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)", [list(_ROLES)])
        if cursor.fetchone() != (len(_ROLES),):
            return
        for question in questions:
            cursor.execute(question, values)
            yield from [statement for (statement,) in cursor.fetchall()]


def grant_privileges(**_: Any) -> None:
    """Grant the roles their privileges, and the memberships that the tables' owner is allowed to grant."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in list(missing_grants()):
            cursor.execute(statement)
    for statement in list(missing_grants(_MEMBERSHIPS)):
        execute_if_possible(statement)


def execute_if_possible(statement: str) -> None:
    """Execute a statement. Ignore missing privileges, and conflicts with another `migrate`."""
    with suppress(ProgrammingError, *_CONCURRENT_CHANGE), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def administrators_sql(owner: str, *, web: str = "", worker: str = "") -> str:
    """Return the SQL that an administrator runs if the tables' owner may not create roles.

    `web` and `worker` are the names of logins to create for these processes. No login is created for a blank name.
    """
    all_roles = (*_FOR_ONE, *_ROLES, FUNCTIONS_ROLE)
    statements = [_if_missing(f"CREATE ROLE {role} NOLOGIN NOINHERIT") for role in all_roles]
    statements += [f"GRANT {role} TO {member};" for member, roles in _CAN_SWITCH_TO.items() for role in roles]
    statements += [f"GRANT {role} TO {_name(owner)};" for role in all_roles]
    for login, role in ((web, WEB_ROLE), (worker, WORKER_ROLE)):
        if login:
            statements += [_if_missing(f"CREATE ROLE {_name(login)} LOGIN"), f"GRANT {role} TO {_name(login)};"]
    return "\n".join(statements)


def create_roles() -> None:
    """Create missing roles if the login is allowed to. `grant_privileges` grants their memberships."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles")
        existing = {name for (name,) in cursor.fetchall()}
    for role in (*_FOR_ONE, *_ROLES, FUNCTIONS_ROLE):
        if role not in existing:
            execute_if_possible(f"CREATE ROLE {role} NOLOGIN NOINHERIT; GRANT {role} TO CURRENT_USER")


def _if_missing(statement: str) -> str:
    return f"DO $$ BEGIN {statement}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"


def _name(role: str) -> str:
    return sql.Identifier(role).as_string()
