"""Distribute the turns of an installation on Citus by person: a trial of what docs/scale.md tells of.

    python -m benchmarks.distribute            # says what it would do
    python -m benchmarks.distribute --apply    # does it, on the database of DATABASE_URL, as a superuser

What is said, and what goes along with each turn, is spread over the workers; all else stays on the coordinator, where
jobs are taken and sessions locked as ever. What is done already is left as it is, so it can be run again.
"""

import argparse
import os
from collections.abc import Iterator

import django
from django.db import connection, transaction

# The first is what the others lie beside: rows of one person are on one node.
TABLES = ("sessions_app_message", "moments_app_turnembedding", "moments_app_owntext", "moments_app_correctedturn")
ROLES = ("memory_request", "memory_operator", "memory_web", "memory_admin", "memory_worker")

# A setting that a function makes for its own statements, which other nodes carry out.
SET = r"set_config\(('memory\.[^,]*, [^,()]*), true\)"

_CITUS = "SELECT extname::text FROM pg_extension WHERE extname = 'citus'"
_WORKERS = "SELECT nodename FROM pg_dist_node WHERE shouldhaveshards AND groupid > 0"
_DISTRIBUTED = "SELECT table_name::text FROM citus_tables WHERE citus_table_type = 'distributed'"
_FOREIGN_KEYS = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname)
FROM pg_constraint WHERE contype = 'f' AND %(table)s::regclass IN (conrelid, confrelid)
"""
# Each node sees to what is unique among its rows, so the person is part of it. A person's sessions and turns are no
# other's, so it says the same.
_KEYS = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I, ADD CONSTRAINT %%I %%s', conrelid::regclass, conname, conname,
    regexp_replace(pg_get_constraintdef(pg_constraint.oid), '\\((.*?)\\)', '(\\1, user_id)'))
FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attname = 'user_id'
WHERE conrelid = %(table)s::regclass AND contype IN ('p', 'u') AND attnum <> ALL (conkey)
"""
# On a node a policy may not look up another table, nor ask by a subquery, as it does to ask once a statement. So an
# operator who is limited to applications sees none of these rows.
_POLICIES = """
SELECT format('ALTER POLICY acting_user ON %%s USING (user_id = NULLIF(current_setting(%%L, true), %%L)::bigint)',
    polrelid::regclass, 'memory.user_pk', '')
FROM pg_policy WHERE polrelid = %(table)s::regclass AND polname = 'acting_user'
UNION ALL SELECT format('DROP POLICY %%I ON %%s', polname, polrelid::regclass)
FROM pg_policy WHERE polrelid = %(table)s::regclass AND polname = 'operators'
"""
# `SET LOCAL` is sent on to other nodes, `set_config` is not. Of several statements in one message all would be sent on,
# so only this one is.
_MEMORY_SET = """
CREATE OR REPLACE FUNCTION memory_set(name text, value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('citus.propagate_set_commands', 'local', true);
    EXECUTE format('SET LOCAL %I = %L', name, value);
    PERFORM set_config('citus.propagate_set_commands', 'none', true);
    RETURN value;
END $$
"""
# Words are looked up by a key that begins with the person, of which Citus knows nothing.
_FUNCTIONS = """
SELECT replace(replace(regexp_replace(pg_get_functiondef(oid), %(set)s, 'memory_set(\\1)', 'g'),
    'FROM sessions_app_message WHERE public.memory_words',
    'FROM sessions_app_message WHERE user_id = $3 AND public.memory_words'),
    'FROM sessions_app_message WHERE id = ANY', 'FROM sessions_app_message WHERE user_id = $3 AND id = ANY')
FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f' AND proname <> 'memory_set'
    AND (prosrc ~ %(set)s OR proname LIKE 'recall_sessions_app_message%%')
"""
# A join with another table reads the rows of turns first, which its conditions narrow to a person's; the other way
# round none is planned under row security. And what a function that searches by meaning sets for its own statements
# isn't sent on.
_SETTINGS = (
    "citus.local_table_join_policy = 'prefer-distributed'",
    "hnsw.iterative_scan = 'relaxed_order'",
    "hnsw.ef_search = 100",
)
# An INSERT of what a SELECT asks the nodes for names the sequence of the identity itself.
_SEQUENCES = "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO memory_request"
_LOGINS = """
SELECT format('ALTER ROLE %%I LOGIN', rolname) FROM pg_roles WHERE rolname = ANY (%(roles)s) AND NOT rolcanlogin
"""


class NotDistributable(Exception):
    """The database is none that tables can be distributed in; the message says why."""


def statements() -> Iterator[str]:
    """Yield what is to be done, each once what came before was done; nothing where all is.

    Raises:
        NotDistributable: the database has no Citus, or knows no workers.
    """
    if not _rows(_CITUS):
        raise NotDistributable("The database has no Citus: CREATE EXTENSION citus, on the workers too.")
    if not _rows(_WORKERS):
        raise NotDistributable("Citus knows no workers: add them by citus_add_node, and run this on the coordinator.")
    missing = [table for table in TABLES if table not in _rows(_DISTRIBUTED)]
    if not missing:
        return
    yield from _rows(_LOGINS)
    for setting in _SETTINGS:
        yield f"ALTER DATABASE {connection.settings_dict['NAME']} SET {setting}"
    yield _SEQUENCES
    yield _MEMORY_SET
    yield from _rows(_FUNCTIONS)
    for table in missing:
        for question in (_FOREIGN_KEYS, _KEYS, _POLICIES):
            yield from _rows(question, table)
        beside = "none" if table == TABLES[0] else TABLES[0]
        # Its triggers mark rows whose words are not those of their text, and read nothing.
        yield "SET LOCAL citus.enable_unsafe_triggers = on"
        yield f"SELECT create_distributed_table('{table}', 'user_id', colocate_with => '{beside}')"
        yield f"SELECT truncate_local_data_after_distributing_table('{table}')"


def apply() -> None:
    """Do what is to be done, completely or not at all."""
    with transaction.atomic():
        for statement in statements():
            with connection.cursor() as cursor:
                cursor.execute(statement)


def _rows(question: str, table: str = "") -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(question, {"table": table, "roles": list(ROLES), "set": SET})
        return [value for (value,) in cursor.fetchall()]


def main() -> None:
    """Say what would be done, or do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apply", action="store_true", help="do it")
    if parser.parse_args().apply:
        apply()
    else:
        print("\n".join(f"{statement.strip()};" for statement in statements()) or "Nothing is to be done.")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    django.setup()
    main()
