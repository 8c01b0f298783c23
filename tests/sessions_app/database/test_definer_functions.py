"""Row 42: no database role gets more rights than its own, whatever SQL it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege
from pytest_django.fixtures import Settings

from memoryproject.apps import definer_functions as deploy_check
from memoryproject.database.verification import definer_function_problems as verified
from sessions_app.database.database_roles import ADMIN_ROLE, FUNCTIONS_ROLE, WEB_ROLE, WORKER_ROLE
from sessions_app.database.definer_functions import SEARCH_PATH, close_gaps, gaps
from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.models import UserProfile
from sessions_app.row_security import ROLE
from tests.support.roles import logged_in_as
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db  # each test is one transaction that is rolled back

# The roles of processes, and the roles that they may set.
MAY_TAKE: dict[str, set[str]] = {
    WEB_ROLE: {ROLE, OPERATOR_ROLE, ADMIN_ROLE},
    WORKER_ROLE: {ROLE},
    ADMIN_ROLE: set(),
    ROLE: set(),
    OPERATOR_ROLE: set(),
    FUNCTIONS_ROLE: set(),
}
FUNCTIONS_SQL = """
    SELECT oid::regprocedure::text, pg_get_functiondef(oid), proargnames, proargtypes::regtype[]::text[]
    FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace
"""
# Raises an error if it runs with rights other than the login's.
EVIL = """
    CREATE FUNCTION pg_temp.evil() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF current_user <> session_user THEN RAISE EXCEPTION 'ran as %', current_user; END IF;
        RETURN true;
    END $$;
    CREATE FUNCTION pg_temp.equal(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT pg_temp.evil()';
    CREATE OPERATOR pg_temp.= (FUNCTION = pg_temp.equal, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE FUNCTION pg_temp.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT pg_temp.evil()::text';
    CREATE DOMAIN pg_temp.tsquery AS pg_catalog.tsquery CHECK (pg_temp.evil());
"""
ARGUMENTS: dict[str, Any] = {
    "kind": "key",
    "query": "[1,2,3]",
    "since": None,
    "until": "2026-01-01",
    "on_day": "2026-01-01",
}
OF_TYPE: dict[str, Any] = {
    "text": "lisbon",
    "text[]": ["u1", "s1"],
    "bigint[]": [1],
    "double precision[]": [1.0, 1.0],
    "boolean": True,
    "pg_catalog.tsquery": "lisbon",  # as PostgreSQL prints it if a domain of the same name shadows it
}
NOT_ALLOWED = [
    "CREATE TABLE public.evil (id int)",
    "CREATE VIEW public.evil AS SELECT 1",
    "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION public.shards_seen() RETURNS SETOF bigint LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA evil",
    "CREATE TEMPORARY TABLE evil (id int)",
    "CREATE FUNCTION pg_temp.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE ROLE evil SUPERUSER",
    "CREATE POLICY evil ON sessions_app_message USING (true)",
    "CREATE TRIGGER evil BEFORE INSERT ON sessions_app_message EXECUTE FUNCTION memory_words_outdated()",
    "ALTER ROLE {role} SUPERUSER",
    "ALTER ROLE {role} BYPASSRLS",
    "ALTER FUNCTION index_vectors SET search_path = pg_temp",
    "ALTER TABLE sessions_app_message DISABLE ROW LEVEL SECURITY",
    f"GRANT {FUNCTIONS_ROLE} TO {{role}}",
    "GRANT pg_execute_server_program TO {role}",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/dev/null'",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT lo_import('/etc/hostname')",
    "SET session_replication_role = replica",
]


def execute(statement: str, values: list[Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def found(question: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(question, values)
        return list(cursor.fetchall())


def error_of(statement: str, values: list[Any] | None = None) -> DatabaseError | None:
    """Run a statement and roll it back; return its error."""
    try:
        with transaction.atomic():
            execute(statement, values)
            transaction.set_rollback(True)
    except DatabaseError as error:
        return error
    return None


def faults() -> list[str]:
    """Return our `SECURITY DEFINER` functions that break the rules."""
    return [
        str(name)
        for (name,) in found(
            f"""
            SELECT pg_proc.oid::regprocedure::text FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
            JOIN pg_roles ON pg_roles.oid = proowner
            WHERE prosecdef AND nspname <> 'information_schema' AND nspname !~ '^pg_'
            AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid
                AND deptype = 'e')
            AND NOT (
                COALESCE('search_path={SEARCH_PATH}' = ANY (proconfig), false)
                AND (rolname = '{FUNCTIONS_ROLE}' OR proname = 'index_vectors')
            ) ORDER BY 1
            """
        )
    ]


def plant(path: str, owner: str) -> None:
    """Create a `SECURITY DEFINER` function."""
    fixed = f"SET search_path = {path}" if path else ""
    execute(f"CREATE FUNCTION planted() RETURNS int LANGUAGE sql SECURITY DEFINER {fixed} AS 'SELECT 1'")
    execute(f"ALTER FUNCTION planted() OWNER TO {owner}")


def attacks() -> Iterator[str]:
    """Shadow the tables of each function, then call it if the role may; yield the errors."""
    execute(EVIL)
    shadow_tables()
    for name, _, names, types in found(FUNCTIONS_SQL):
        arguments = list(zip(names or [], types, strict=False))  # column names follow
        values = [ARGUMENTS.get(argument, OF_TYPE.get(kind, 1)) for argument, kind in arguments]
        casts = ", ".join(f"%s::{kind}" for _, kind in arguments)
        yield str(error_of(f"SELECT * FROM {name.partition('(')[0]}({casts})", values))


def shadow_tables() -> None:
    """Shadow each table that a function names with a temporary view of the caller."""
    definitions = " ".join(str(definition) for _, definition, _, _ in found(FUNCTIONS_SQL))
    for (table,) in found("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        if str(table) in definitions:
            columns = found(
                "SELECT format('CASE WHEN pg_temp.evil() THEN NULL::%%s END AS %%I', "
                "format_type(atttypid, atttypmod), attname) FROM pg_attribute "
                "WHERE attrelid = format('public.%%I', %s::text)::regclass AND attnum > 0 AND NOT attisdropped",
                [table],
            )
            execute(f"CREATE TEMPORARY VIEW {table} AS SELECT {', '.join(str(column) for (column,) in columns)}")
            execute(f"GRANT SELECT ON pg_temp.{table} TO PUBLIC")


@contextmanager
def temporary_objects() -> Iterator[None]:
    """Allow all roles to create temporary objects, as if `migrate` could not revoke it."""
    name = connection.settings_dict["NAME"]
    execute(f"GRANT TEMPORARY ON DATABASE {name} TO PUBLIC")
    yield
    execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")


class TestFunctions:
    """The definitions of the functions."""

    def test_row_42_each_definer_function_has_a_fixed_path_and_an_owner_with_few_rights(self) -> None:
        assert faults() == []
        assert len(found(FUNCTIONS_SQL)) > 15

    @pytest.mark.parametrize(
        "path", ["", "public", "pg_catalog", "pg_temp, pg_catalog, public", "pg_catalog, pg_temp, public"]
    )
    def test_row_42_a_definer_function_with_another_path_is_reported(self, path: str) -> None:
        plant(path, FUNCTIONS_ROLE)
        assert faults() == ["planted()"]

    def test_row_42_a_definer_function_of_another_owner_is_reported(self) -> None:
        plant(SEARCH_PATH, connection.settings_dict["USER"])
        assert faults() == ["planted()"]

    def test_row_42_the_functions_owner_cannot_log_in_and_has_no_special_rights(self) -> None:
        assert found(
            "SELECT rolsuper, rolcanlogin, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = %s",
            [FUNCTIONS_ROLE],
        ) == [(False,) * 5]
        assert found("SELECT 1 FROM pg_auth_members WHERE member = %s::regrole", [FUNCTIONS_ROLE]) == []
        owned = (
            "SELECT DISTINCT classid::regclass::text FROM pg_shdepend WHERE refobjid = %s::regrole AND deptype = 'o'"
        )
        assert found(owned, [FUNCTIONS_ROLE]) == [("pg_proc",)]

    def test_row_42_the_functions_owner_can_read_only_what_they_need(self) -> None:
        with logged_in_as(FUNCTIONS_ROLE):
            assert error_of("SELECT id, search_vector FROM sessions_app_message") is None
            for statement in (
                "SELECT content FROM sessions_app_message",
                "SELECT secret_hash FROM sessions_app_apikey",
                "SELECT summary FROM sessions_app_userprofile",
                "SELECT * FROM auth_user",
                "DELETE FROM sessions_app_dailyusage",
                "UPDATE sessions_app_apikey SET user_id = 1",
            ):
                assert isinstance(getattr(error_of(statement), "__cause__", None), InsufficientPrivilege), statement


@pytest.mark.parametrize("role", MAY_TAKE)
class TestAttacks:
    """The rights that an attacker gains by running SQL as one of the roles."""

    def test_row_42_no_function_gives_its_owners_rights_to_the_caller(self, role: str) -> None:
        with temporary_objects(), logged_in_as(role):
            said = list(attacks())
        assert [text for text in said if "ran as" in text] == []
        called = [text for text in said if "permission denied for function" not in text]
        assert called or role == OPERATOR_ROLE

    def test_row_42_no_other_statement_gives_a_role_more_rights(self, role: str) -> None:
        with logged_in_as(role):
            for statement in NOT_ALLOWED:
                error = error_of(statement.format(role=role))
                assert isinstance(getattr(error, "__cause__", None), InsufficientPrivilege), (statement, error)

    def test_row_42_a_role_can_set_only_the_roles_that_it_needs(self, role: str) -> None:
        others = {str(name) for (name,) in found("SELECT rolname FROM pg_roles WHERE rolname <> %s", [role])}
        with logged_in_as(role):
            assert {other for other in others if error_of(f'SET ROLE "{other}"') is None} == MAY_TAKE[role]


@pytest.mark.parametrize(("role", "lent"), [(WEB_ROLE, 1), (ROLE, 13), (WORKER_ROLE, 14)])
def test_row_42_the_attack_works_on_functions_that_find_temporary_objects_first(role: str, lent: int) -> None:
    owner = connection.settings_dict["USER"]
    for name, _, _, _ in found(FUNCTIONS_SQL):
        execute(f'ALTER FUNCTION {name} SET search_path = "$user", public; ALTER FUNCTION {name} OWNER TO {owner}')
    with temporary_objects(), logged_in_as(role):
        assert len([text for text in attacks() if f"ran as {owner}" in text]) == lent


class TestLeaks:
    """Errors and statistics reveal nothing about rows that a role can't see."""

    def test_row_42_no_condition_is_evaluated_on_hidden_rows(self) -> None:
        bo = UserProfile.objects.ensure("bo")
        talk(bo, 4)
        UserProfile.objects.filter(pk=bo.pk).update(summary="Marked")
        execute("ANALYZE sessions_app_message, sessions_app_userprofile")
        for role, table, column in (
            (ROLE, "sessions_app_message", "content"),
            (OPERATOR_ROLE, "sessions_app_message", "content"),
            (WEB_ROLE, "sessions_app_userprofile", "user_id"),
        ):
            with logged_in_as(role):
                assert found(f"SELECT count(*) FROM {table} WHERE {column}::bigint > 0") == [(0,)]
                assert found("SELECT 1 FROM pg_stats WHERE tablename = %s", [table]) == []


class TestGaps:
    """`migrate` closes the gaps that its login may close, and reports the rest."""

    def test_no_gaps_are_left_after_migrate(self) -> None:
        assert list(gaps()) == [] and verified() == []

    def test_row_42_migrate_revokes_the_default_rights_of_a_database(self) -> None:
        open_up()
        assert len(list(gaps())) == 6
        close_gaps()
        assert list(gaps()) == [] and faults() == []

    def test_row_42_a_gap_that_the_login_may_not_close_is_reported_with_its_fix(self, settings: Settings) -> None:
        open_up()
        with logged_in_as(ADMIN_ROLE):
            close_gaps()
        settings.DATABASE_IS_EMBEDDED = False
        warnings = deploy_check()
        assert [warning.msg for warning in warnings] == [gap.what for gap in gaps()]
        assert verified() == [f"{warning.msg} {warning.hint}" for warning in warnings]
        for gap in list(gaps()):
            execute(gap.statement)
        assert verified() == [] and deploy_check() == []


def open_up() -> None:
    """Set functions, privileges and policies as in a database before its upgrade."""
    owner = connection.settings_dict["USER"]
    execute(f"""
        ALTER FUNCTION shards_seen() RESET search_path;
        ALTER FUNCTION vocabularies_seen() OWNER TO {owner};
        REVOKE SELECT (id) ON moments_app_vocabulary FROM {FUNCTIONS_ROLE};
        DROP POLICY {FUNCTIONS_ROLE} ON sessions_app_message;
        GRANT TEMPORARY ON DATABASE {connection.settings_dict["NAME"]} TO PUBLIC;
        GRANT CREATE ON SCHEMA public TO PUBLIC;
    """)
