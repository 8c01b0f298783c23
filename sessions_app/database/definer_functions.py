"""`SECURITY DEFINER` functions, and rules that prevent misuse of their owner's privileges.

Without these rules, a role that may call such a function could gain the privileges of the function's owner:

- The function's search path is fixed and ends with `pg_temp`, so temporary objects of the caller can't shadow names.
- Its owner is `memory_functions`, which can't log in, isn't a superuser, and may use only the columns in `_NEEDED`.
- No other role may create temporary objects, or anything in the schema `public`.

The tables' owner still owns `index_vectors`, which creates indexes. If other servers store rows, `memory_functions` may
log in, because the functions connect to these servers as their owner.

`migrate` enforces these rules as far as its login is allowed to. `verify` and `check --deploy` report the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

from sessions_app.database.database_roles import FUNCTIONS_ROLE, execute_if_possible
from sessions_app.database.several_servers import remote_tables

SEARCH_PATH = "pg_catalog, public, pg_temp"
_SEARCHED = "id user_id search_vector"
_VECTORS = "user_id model_id source_id vector said_at"
# The columns that the functions use. Locking a row requires UPDATE on one of its columns.
_NEEDED = (
    ("sessions_app_message", "SELECT", f"{_SEARCHED} created_at kind role retracted_at"),
    ("moments_app_moment", "SELECT", f"{_SEARCHED} ends_at"),
    (
        "moments_app_memoryatom",
        "SELECT",
        f"{_SEARCHED} stream_id state formed_at corrected_at valid_from valid_until ended_at",
    ),
    ("moments_app_storeditem", "SELECT", f"{_SEARCHED} application_id namespace value expires_at updated_at"),
    ("moments_app_turnembedding", "SELECT", _VECTORS),
    ("moments_app_momentembedding", "SELECT", _VECTORS),
    ("moments_app_factembedding", "SELECT", _VECTORS),
    ("moments_app_itemembedding", "SELECT", "model_id source_id vector"),
    ("moments_app_memorystream", "SELECT", "id user_id application_id stream_type"),
    ("moments_app_vocabulary", "SELECT", "id stream_id"),
    ("sessions_app_userprofile", "SELECT", "id user_id application_id"),
    ("sessions_app_userprofile", "UPDATE", "updated_at"),
    ("sessions_app_apikey", "SELECT", "id user_id"),
    ("sessions_app_apikey", "UPDATE", "last_used_at"),
    ("sessions_app_application", "SELECT", "id"),
    ("sessions_app_application", "UPDATE", "created_at"),
    ("sessions_app_dailylimit", "SELECT", "key_id application_id requests model_calls usd"),
    ("sessions_app_dailyusage", "SELECT", "id key_id application_id day requests model_calls usd"),
    ("sessions_app_dailyusage", "INSERT", "key_id application_id day requests model_calls usd"),
    ("sessions_app_dailyusage", "UPDATE", "requests model_calls usd"),
)


@dataclass(frozen=True)
class Gap:
    """A violation of a rule."""

    what: str  # a sentence that describes it
    statement: str  # the SQL that fixes it

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"

    @property
    def remedy(self) -> str:
        return f"Run manage.py migrate. If its login lacks the permission, an administrator runs: {self.statement};"


_OWN = """
    (SELECT pg_proc.oid, proname, nspname, proconfig, pg_get_userbyid(proowner) AS owner
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace WHERE prosecdef AND nspname = 'public'
        AND (proname ~ '^(count_usage|index_vectors|shards_seen|vocabularies_seen)$'
            OR proname ~ '^(recall|nearest|search)_(sessions_app|moments_app)_')
    ORDER BY 1) own
"""
_TABLES_OWNER = "(SELECT tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename = 'sessions_app_message')"
_ROLE = f"JOIN pg_roles ON rolname = '{FUNCTIONS_ROLE}'"

# For each rule, a sentence about its violation, and a query that returns the statements to fix it. Later rules depend
# on the fixes of earlier ones.
_RULES = (
    (
        "SECURITY DEFINER functions resolve names in schemas where their callers can create objects.",
        f"""
        SELECT string_agg(format('ALTER FUNCTION %%s SET search_path = {SEARCH_PATH}', oid::regprocedure), '; ')
        FROM {_OWN} WHERE 'search_path={SEARCH_PATH}' <> ALL (COALESCE(proconfig, '{{}}')) HAVING count(*) > 0
        """,  # noqa: S608 (names of our own)
    ),
    (
        f"The role {FUNCTIONS_ROLE}, which owns the SECURITY DEFINER functions, is missing.",
        f"SELECT 'CREATE ROLE {FUNCTIONS_ROLE} NOLOGIN NOINHERIT' WHERE to_regrole('{FUNCTIONS_ROLE}') IS NULL",
    ),
    (
        f"The role {FUNCTIONS_ROLE} has more rights than it needs to own functions.",
        f"""
        SELECT 'ALTER ROLE {FUNCTIONS_ROLE} NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB NOREPLICATION'
            || CASE WHEN %(logs_in)s THEN '' ELSE ' NOLOGIN' END
        FROM pg_roles WHERE rolname = '{FUNCTIONS_ROLE}' AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb
            OR rolreplication OR rolcanlogin AND NOT %(logs_in)s)
        """,  # noqa: S608 (names of our own)
    ),
    (
        f"The owner of the tables is not a member of the role {FUNCTIONS_ROLE}.",
        f"""
        SELECT format('GRANT {FUNCTIONS_ROLE} TO %%I', tableowner) FROM {_TABLES_OWNER} tables {_ROLE}
        WHERE NOT pg_has_role(tableowner, pg_roles.oid, 'USAGE')
        """,  # noqa: S608 (names of our own)
    ),
    (
        f"The role {FUNCTIONS_ROLE} lacks a privilege that its functions need.",
        f"""
        SELECT format('GRANT %%s (%%s) ON %%I TO {FUNCTIONS_ROLE}', privilege, string_agg(attname, ', '), name)
        FROM unnest(%(tables)s::text[], %(privileges)s::text[], %(columns)s::text[]) needed (name, privilege, columns)
        {_ROLE} JOIN pg_attribute ON attrelid = to_regclass(name) AND attname = ANY (string_to_array(columns, ' '))
        WHERE NOT has_column_privilege(pg_roles.oid, attrelid, attnum, privilege) GROUP BY name, privilege
        """,  # noqa: S608 (names of our own)
    ),
    (
        f"Row-level security hides rows from the role {FUNCTIONS_ROLE}.",
        f"""
        SELECT DISTINCT format('CREATE POLICY {FUNCTIONS_ROLE} ON %%I TO {FUNCTIONS_ROLE} USING (true)', relname)
        FROM unnest(%(tables)s::text[]) name {_ROLE} JOIN pg_class ON pg_class.oid = to_regclass(name)
        WHERE relrowsecurity
        AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid AND polname = '{FUNCTIONS_ROLE}')
        """,  # noqa: S608 (names of our own)
    ),
    (
        "SECURITY DEFINER functions belong to a role with more rights than they need.",
        f"""
        SELECT format('GRANT CREATE ON SCHEMA public TO {FUNCTIONS_ROLE}; %%s; '
            'REVOKE CREATE ON SCHEMA public FROM {FUNCTIONS_ROLE}',
            string_agg(format('ALTER FUNCTION %%s OWNER TO {FUNCTIONS_ROLE}', oid::regprocedure), '; '))
        FROM {_OWN} WHERE nspname = 'public' AND proname <> 'index_vectors' AND owner <> '{FUNCTIONS_ROLE}'
        HAVING count(*) > 0
        """,  # noqa: S608 (names of our own)
    ),
    (
        "Every role can create temporary objects in this database.",
        f"""
        SELECT format('GRANT TEMPORARY ON DATABASE %%1$I TO %%2$I; REVOKE TEMPORARY ON DATABASE %%1$I FROM PUBLIC',
            datname, tableowner)
        FROM {_TABLES_OWNER} tables, pg_database, aclexplode(COALESCE(datacl, acldefault('d', datdba)))
        WHERE datname = current_database() AND grantee = 0 AND privilege_type = 'TEMPORARY'
        """,  # noqa: S608 (names of our own)
    ),
    (
        "Every role can create objects in the schema public.",
        f"""
        SELECT format('GRANT CREATE ON SCHEMA public TO %%I; REVOKE CREATE ON SCHEMA public FROM PUBLIC', tableowner)
        FROM {_TABLES_OWNER} tables, pg_namespace, aclexplode(nspacl)
        WHERE nspname = 'public' AND grantee = 0 AND privilege_type = 'CREATE'
        """,  # noqa: S608 (names of our own)
    ),
)


def gaps() -> Iterator[Gap]:
    """Yield violations one by one. The caller can fix each one before the query for the next rule runs."""
    tables, privileges, columns = map(list, zip(*_NEEDED, strict=True))
    named: dict[str, Any] = {
        "tables": tables,
        "privileges": privileges,
        "columns": columns,
        "logs_in": bool(remote_tables()),
    }
    for what, question in _RULES:
        with connection.cursor() as cursor:
            cursor.execute(question, named)
            statements = [statement for (statement,) in cursor.fetchall()]
        yield from (Gap(what, statement) for statement in statements)


def close_gaps(**_: Any) -> None:
    for gap in gaps():
        execute_if_possible(gap.statement)
