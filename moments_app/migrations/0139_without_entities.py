"""Remove the former table of tasks, goals and problems. Links, and what retractions keep, refer to the statements.

0138 has copied the rows. The rows that were added or changed since are copied here, and copies of rows deleted since
are deleted.
"""

from django.db import connection, migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.migrations._entities import COLUMNS, COPY, FROM, ensure_lists

ITEMS, LINKS = "moments_app_retracteditem", "moments_app_entitylink"
LOCK = f"LOCK TABLE moments_app_entity, {LINKS}, {ITEMS} IN SHARE ROW EXCLUSIVE MODE"
USERS = f"""
SELECT user_id FROM moments_app_entity
UNION SELECT user_id FROM {ITEMS} WHERE model = 'moments_app.entity' AND user_id IS NOT NULL
"""  # noqa: S608 (names of our own)
DELETED = """
SELECT atom.id FROM moments_app_memoryatom atom JOIN moments_app_memorystream list ON list.id = atom.stream_id
WHERE list.stream_type = 'user' AND list.agent_id = ''
    AND atom.content_hash = encode(sha256(atom.atom_id::text::bytea), 'hex')
    AND NOT EXISTS (SELECT FROM moments_app_entity WHERE entity_id = atom.atom_id)
"""
MISSING = """
SELECT id FROM moments_app_entity e WHERE NOT EXISTS (SELECT FROM moments_app_memoryatom WHERE atom_id = e.entity_id)
"""
CHANGED = f"""
UPDATE moments_app_memoryatom atom SET {", ".join(f"{name} = {sql}" for name, sql in COLUMNS.items())} {FROM}
WHERE atom.atom_id = e.entity_id AND GREATEST(atom.formed_at, atom.ended_at) <> e.updated_at
"""  # noqa: S608 (names of our own)
MOVED = (
    """
    CREATE TEMPORARY TABLE moved ON COMMIT DROP AS
    SELECT e.id AS old, atom.id AS new FROM moments_app_entity e JOIN moments_app_memoryatom atom
        ON atom.atom_id = e.entity_id
    """,
    f"""
    INSERT INTO moved SELECT object_pk, nextval(pg_get_serial_sequence('moments_app_memoryatom', 'id'))
    FROM {ITEMS} WHERE model = 'moments_app.entity'
    """,  # noqa: S608 (names of our own)
    "CREATE INDEX ON moved (old)",
    "ANALYZE moved",
)
# Rows that retractions keep have the fields of the Django model, and foreign keys without `_id`.
KEPT_COLUMNS = {
    name if name in ("atom_id", "external_id") else name.removesuffix("_id"): sql for name, sql in COLUMNS.items()
}
DEFAULTS = {
    **dict.fromkeys(("about", "source_user", "merged_into", "replaced_by", "job", "prompt_version"), "NULL::text"),
    **dict.fromkeys(("position", "consolidated_at"), "NULL::text"),
    **dict.fromkeys(("source_message_ids", "end_message_ids", "related_users"), "'[]'"),
    **dict.fromkeys(("is_candidate", "is_pinned"), "false"),
}
FIELDS = ", ".join(f"'{name}', {sql}" for name, sql in (KEPT_COLUMNS | DEFAULTS).items())
KEPT = (
    f"""
    UPDATE {ITEMS} item SET model = 'moments_app.memoryatom', object_pk = made.new, data = made.data FROM (
        SELECT item.id, moved.new, jsonb_build_object({FIELDS}) AS data
        FROM {ITEMS} item JOIN moved ON moved.old = item.object_pk
        JOIN moments_app_memorystream list
            ON list.user_id = item.user_id AND list.stream_type = 'user' AND list.agent_id = ''
        CROSS JOIN LATERAL jsonb_populate_record(NULL::moments_app_entity, item.data || jsonb_build_object(
            'user_id', item.user_id, 'source_session_id', item.data -> 'source_session'
        )) e
        WHERE item.model = 'moments_app.entity'
    ) made WHERE made.id = item.id
    """,  # noqa: S608 (names of our own)
    f"""
    UPDATE {ITEMS} SET data = data || jsonb_build_object(
        'from_entity', COALESCE((SELECT max(new) FROM moved WHERE old = (data ->> 'from_entity')::bigint), -1),
        'to_entity', COALESCE((SELECT max(new) FROM moved WHERE old = (data ->> 'to_entity')::bigint), -1)
    ) WHERE model = 'moments_app.entitylink'
    """,  # noqa: S608 (names of our own)
)
WITHOUT_KEYS = f"""
SELECT conname FROM pg_constraint
WHERE conrelid = '{LINKS}'::regclass AND confrelid = 'moments_app_entity'::regclass
"""  # noqa: S608 (names of our own)
# First negative, so that no link gets the keys of one that is yet to be changed.
RELINKED = (
    f"""
    UPDATE {LINKS} SET from_entity_id = (SELECT -max(new) FROM moved WHERE old = from_entity_id),
        to_entity_id = (SELECT -max(new) FROM moved WHERE old = to_entity_id)
    """,  # noqa: S608 (names of our own)
    f"UPDATE {LINKS} SET from_entity_id = -from_entity_id, to_entity_id = -to_entity_id",  # noqa: S608
    "SET CONSTRAINTS ALL IMMEDIATE",
)
KEYS = "; ".join(
    f"ALTER TABLE {LINKS} ADD CONSTRAINT entity_link_{end} FOREIGN KEY ({end}_entity_id) "
    "REFERENCES moments_app_memoryatom DEFERRABLE INITIALLY DEFERRED"
    for end in ("from", "to")
)
DROP = """
DROP FUNCTION search_moments_app_entity(bigint, text, text, integer);
DROP FUNCTION search_moments_app_entity(bigint, tsquery, real, text, integer);
DROP TABLE moments_app_entity;
"""


def move(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(LOCK)
        cursor.execute(USERS)
        ensure_lists(apps.get_model("moments_app", "MemoryStream").objects, [user for (user,) in cursor.fetchall()])
        cursor.execute(DELETED)
        apps.get_model("moments_app", "MemoryAtom").objects.filter(pk__in=[pk for (pk,) in cursor.fetchall()]).delete()
        cursor.execute(MISSING)
        cursor.execute(COPY, [[pk for (pk,) in cursor.fetchall()]])
        for statement in (CHANGED, *MOVED, *KEPT):
            cursor.execute(statement)
        cursor.execute(WITHOUT_KEYS)
        for (name,) in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {LINKS} DROP CONSTRAINT {name}")
        for statement in RELINKED:
            cursor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0138_entities_are_statements")]

    operations = [
        migrations.RunPython(move),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(KEYS), migrations.RunSQL(DROP)],
            state_operations=[
                migrations.DeleteModel(name="Entity"),
                migrations.CreateModel(
                    name="Entity",
                    fields=[],
                    options={
                        "verbose_name_plural": "entities",
                        "proxy": True,
                        "indexes": [],
                        "constraints": [],
                    },
                    bases=("moments_app.memoryatom",),
                ),
            ],
        ),
    ]
