"""Distributed turns: convert an installation on Citus to a distributed one.

Messages and the tables of their vectors are distributed over PostgreSQL servers by person. Everything else stays on the
coordinator, including jobs and session locks (docs/scale.md). Only this module depends on Citus: all other SQL is the
same with and without it. Completed steps are skipped, so an interrupted run can resume. After `migrate`, objects that a
migration recreated are distributed again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from django.db import connection, transaction
from django.db.backends.postgresql.schema import DatabaseSchemaEditor

from sessions_app.database.database_roles import ADMIN_ROLE, FUNCTIONS_ROLE, WEB_ROLE, WORKER_ROLE
from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.row_security import ACTING, ROLE

# The other tables are colocated with the first, so rows of one person are on one node.
TABLES = ("sessions_app_message", "moments_app_turnembedding", "moments_app_owntext", "moments_app_correctedturn")
ROLES = (ROLE, OPERATOR_ROLE, WEB_ROLE, ADMIN_ROLE, WORKER_ROLE, FUNCTIONS_ROLE)

# Each query must return a row. If it doesn't, the message says what is missing.
_REQUIREMENTS = (
    (
        "SELECT 1 FROM pg_extension WHERE extname = 'citus'",
        "The database lacks the extension citus. An administrator runs this statement on each server: CREATE "
        "EXTENSION citus.",
    ),
    (
        "SELECT 1 FROM pg_dist_local_group WHERE groupid = 0",
        "This server is a worker. Set DATABASE_URL to the coordinator.",
    ),
    (
        "SELECT 1 FROM pg_dist_node WHERE groupid = 0",
        "The address at which workers reach this server is not set. To set it, run SELECT "
        "citus_set_coordinator_host('HOST').",
    ),
    (
        "SELECT 1 FROM pg_dist_node WHERE groupid > 0 AND shouldhaveshards",
        "The cluster has no workers. To add a worker, run SELECT citus_add_node('HOST', 5432).",
    ),
    (
        "SELECT 1 FROM pg_roles WHERE rolname = current_user AND rolsuper",
        "To let roles log in on the workers, name a superuser in DATABASE_URL for this command.",
    ),
    (
        "SELECT 1 FROM pg_class WHERE oid = to_regclass('sessions_app_message')",
        "The database has no tables yet. Run manage.py migrate first.",
    ),
)

_IS_DISTRIBUTED = "SELECT to_regclass('distribution.person') IS NOT NULL"
_DISTRIBUTED = "SELECT table_name::text FROM citus_tables WHERE citus_table_type = 'distributed'"

# --- for all tables: each query returns the missing statements ---

# Within a transaction, Citus connects to other nodes as the current role, so each role must be able to log in.
_LOGINS = """
SELECT format('ALTER ROLE %%I LOGIN', rolname) FROM pg_roles WHERE rolname = ANY (%(roles)s) AND NOT rolcanlogin
"""
# A join with a local table must read the distributed table first, filtered by person, because row-level security
# doesn't allow the other order. The settings of the functions for vector search are not propagated to nodes, so they
# are set for the database. Triggers on distributed tables are safe here, because each uses only its own row. Migrations
# that change both a table and a function need one sequential connection per node.
_SETTINGS = """
SELECT format('ALTER DATABASE %%I SET %%s = %%L', current_database(), name, value)
FROM (VALUES ('citus.local_table_join_policy', 'prefer-distributed'), ('hnsw.iterative_scan', 'relaxed_order'),
    ('hnsw.ef_search', '100'), ('citus.enable_unsafe_triggers', 'on'), ('citus.multi_shard_modify_mode', 'sequential')
) setting (name, value)
WHERE NOT EXISTS (
    SELECT FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
    WHERE datname = current_database() AND setrole = 0 AND name || '=' || value = ANY (setconfig)
)
"""
# For INSERT … SELECT from nodes, Citus reads the sequence of the identity column, which requires a privilege.
_SEQUENCES = f"""
SELECT format('GRANT USAGE ON SEQUENCE %%s TO {ROLE}', sequence)
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attname = 'id' AND attidentity <> '',
    pg_get_serial_sequence(attrelid::regclass::text, attname) sequence
WHERE relnamespace = 'public'::regnamespace AND has_table_privilege('{ROLE}', attrelid, 'INSERT')
    AND NOT has_sequence_privilege('{ROLE}', sequence, 'USAGE')
"""  # noqa: S608 (names of our own)
# `SET LOCAL` is propagated to other nodes, but `set_config` is not. Propagation is on only for this statement.
# Otherwise, every later `SET LOCAL` in the transaction would be propagated.
_MEMORY_SET = """
SELECT $statement$
CREATE OR REPLACE FUNCTION memory_set(name text, value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('citus.propagate_set_commands', 'local', true);
    EXECUTE format('SET LOCAL %%I = %%L', name, value);
    PERFORM set_config('citus.propagate_set_commands', 'none', true);
    RETURN value;
END $$
$statement$ FROM pg_proc WHERE oid = 'memory_set(text, text)'::regprocedure AND prosrc !~ 'SET LOCAL'
"""
# Make functions propagate their settings to other nodes, and add a filter by person to their queries, because Citus
# doesn't know that the keys of the word index start with the person.
_FUNCTIONS = r"""
SELECT made FROM (
    SELECT definition, regexp_replace(
        regexp_replace(definition, 'set_config\((''memory\.[^,]*, [^,()]*), true\)', 'memory_set(\1)', 'g'),
        '(FROM sessions_app_message WHERE) (public\.memory_words|id = ANY|\$2 <>)', '\1 user_id = $3 AND \2', 'g'
    ) AS made
    FROM pg_proc, pg_get_functiondef(oid) definition
    WHERE pronamespace = 'public'::regnamespace AND proname ~ '^(recall|nearest)_'
) function WHERE made <> definition
"""
# These functions run as the owner of the tables, and Citus queries the nodes with the owner's login.
_SEARCH_PATHS = """
SELECT format('ALTER FUNCTION %%s SET search_path = pg_catalog, public, pg_temp', oid::regprocedure) FROM pg_proc
WHERE prosecdef AND pronamespace = to_regnamespace('distribution')
    AND 'search_path=pg_catalog, public, pg_temp' <> ALL (COALESCE(proconfig, '{}'))
"""
_FOR_DATABASE = (_LOGINS, _SETTINGS, _SEQUENCES, _MEMORY_SET, _FUNCTIONS, _SEARCH_PATHS)

# On a node, a policy can't read our other tables, so each node has a copy of the people's applications. Only these
# functions, which run as the owner of the tables, can access it.
_PEOPLE = (
    "CREATE SCHEMA distribution",
    f"GRANT USAGE ON SCHEMA distribution TO {OPERATOR_ROLE}",
    "CREATE TABLE distribution.person (id bigint PRIMARY KEY, application_id bigint NOT NULL)",
    "SELECT create_reference_table('distribution.person')",
    """
CREATE FUNCTION distribution.follow() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM distribution.person WHERE id = OLD.id;
    ELSE
        INSERT INTO distribution.person VALUES (NEW.id, NEW.application_id)
        ON CONFLICT (id) DO UPDATE SET application_id = EXCLUDED.application_id;
    END IF;
    RETURN NULL;
END $$
""",
    """
CREATE TRIGGER distribution AFTER INSERT OR DELETE OR UPDATE OF application_id ON sessions_app_userprofile
FOR EACH ROW EXECUTE FUNCTION distribution.follow()
""",
    "INSERT INTO distribution.person SELECT id, application_id FROM sessions_app_userprofile",
    # On a node, a function must use the name of the table's shard, which is the same on all nodes.
    """
DO $do$ BEGIN EXECUTE format($statement$
    CREATE FUNCTION distribution.sees(person bigint) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp AS $$
    BEGIN
        RETURN EXISTS (
            SELECT FROM distribution.person_%s WHERE id = person
            AND application_id = ANY (string_to_array(current_setting('memory.applications', true), ',')::bigint[])
        );
    END $$
$statement$, (SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'distribution.person'::regclass)); END $do$
""",
)
# Change the owner last: within a transaction, a role doesn't see another role's new objects on a node.
_OWNED = """
SELECT format('ALTER %%s OWNER TO %%I', made, tableowner) FROM pg_tables, unnest(ARRAY['FUNCTION distribution.follow()',
    'FUNCTION distribution.sees(bigint)', 'TABLE distribution.person', 'SCHEMA distribution']) made
WHERE tablename = %(table)s
"""

# --- for one table ---

_FOREIGN_KEYS = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname)
FROM pg_constraint WHERE contype = 'f' AND %(table)s::regclass IN (conrelid, confrelid)
"""
# Each node enforces uniqueness only among its own rows, so the constraint must include the person. The constraint means
# the same as before, because a session belongs to one person.
_KEYS = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I, ADD CONSTRAINT %%I %%s', conrelid::regclass, conname, conname,
    regexp_replace(pg_get_constraintdef(pg_constraint.oid), '\\((.*?)\\)', '(\\1, user_id)'))
FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attname = 'user_id'
WHERE conrelid = %(table)s::regclass AND contype IN ('p', 'u') AND attnum <> ALL (conkey)
"""
# Policies on distributed tables can't use a subquery. In other databases, the policies use one so that the condition
# is evaluated once per statement.
_POLICIES = f"""
SELECT format('ALTER POLICY %%I ON %%s USING (%%s)', polname, polrelid::regclass, rows)
FROM pg_policy JOIN (VALUES ('acting_user', $$user_id = {ACTING}$$), ('operators', 'distribution.sees(user_id)'))
    node (policy, rows) ON policy = polname
WHERE polrelid = %(table)s::regclass
"""  # noqa: S608
_FOR_TABLE = (_FOREIGN_KEYS, _KEYS, _POLICIES)


class NotDistributable(Exception):
    """The database can't be distributed. The message says why."""


class SchemaEditor(DatabaseSchemaEditor):
    """A schema editor that starts its transaction with a separate query.

    Otherwise `BEGIN` and the first statement would be one query string, and Citus sends such strings to the other
    servers as a whole.
    """

    def __enter__(self) -> Self:
        editor = super().__enter__()
        if self.atomic_migration:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        return editor


@dataclass(frozen=True)
class Step:
    """The statements of one transaction. `what` describes them, with the number of rows."""

    what: str
    statements: list[str]

    def as_sql(self) -> str:
        return "\n".join([f"-- {self.what}", *(f"{statement.strip()};" for statement in self.statements)])


def is_distributed() -> bool:
    """Return whether the database is distributed, at least partly."""
    return bool(_column(_IS_DISTRIBUTED)[0])


def distributed_tables() -> Sequence[str]:
    """Return the tables whose rows are on other servers."""
    return TABLES if is_distributed() else ()


def steps() -> Iterator[Step]:
    """Yield the remaining steps. The caller must execute each one before the next. Raise `NotDistributable`."""
    for question, problem in _REQUIREMENTS:
        if not _column(question):
            raise NotDistributable(problem)
    if of_database := [*_missing_statements(_FOR_DATABASE)]:
        yield Step("The database", of_database)
    if not is_distributed():
        [people] = _column("SELECT count(*) FROM sessions_app_userprofile")
        yield Step(f"The applications of {people:,} people", [*_PEOPLE, *_missing_statements((_OWNED,), TABLES[0])])
    for table in TABLES:
        if table not in _column(_DISTRIBUTED):
            [rows] = _column(f"SELECT count(*) FROM {table}")  # noqa: S608 (names of our own)
            yield Step(f"{table}, {rows:,} rows", list(_distribute(table)))


def execute(step: Step) -> None:
    _execute(step.statements)


def redistribute(**_: Any) -> None:
    """If the database is distributed, distribute the objects that `migrate` has recreated."""
    if is_distributed():
        _execute(list(_missing_statements(_FOR_DATABASE)))


def _missing_statements(questions: Sequence[str], table: str = "") -> Iterator[str]:
    for question in questions:
        yield from _column(question, table)


def _distribute(table: str) -> Iterator[str]:
    yield from _missing_statements(_FOR_TABLE, table)
    colocated_with = "none" if table == TABLES[0] else TABLES[0]
    yield "SET LOCAL citus.enable_unsafe_triggers = on"
    yield f"SELECT create_distributed_table('{table}', 'user_id', colocate_with => '{colocated_with}')"
    yield f"SELECT truncate_local_data_after_distributing_table('{table}')"


def _column(question: str, table: str = "") -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question, {"table": table, "roles": list(ROLES)})
        return [value for (value,) in cursor.fetchall()]


def _execute(statements: Sequence[str]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
