"""Chains that were linked in the order of building are linked by when things happened, and moments can hold a journey.

Links are found without a lock and mended a few hundred at a time, each time as the order is then: so builds go on
meanwhile, and the step can be run again wherever it was stopped.
"""

from typing import Any

from django.db import migrations, models, transaction

PEOPLE, MOMENTS = 500, 500  # at a time

PEOPLE_SQL = "SELECT id FROM sessions_app_userprofile WHERE id > %s ORDER BY id LIMIT %s"
WRONG_SQL = """
SELECT id, user_id FROM (
    SELECT id, user_id, previous_moment_keys AS links, array_remove(
        ARRAY[lag(key, 1) OVER chain, lag(key, 2) OVER chain, lag(key, 3) OVER chain]::text[], NULL
    ) AS wanted
    FROM moments_app_moment WHERE user_id = ANY(%s)
    WINDOW chain AS (PARTITION BY user_id ORDER BY ends_at, first_sequence, id)
) linked WHERE links IS DISTINCT FROM wanted
"""
# Whoever changes the chain holds this lock.
LOCK_SQL = "SELECT id FROM sessions_app_userprofile WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
LINK_SQL = """
UPDATE moments_app_moment m SET previous_moment_keys = ARRAY(
    SELECT before.key FROM moments_app_moment before WHERE before.user_id = m.user_id
      AND (before.ends_at, before.first_sequence, before.id) < (m.ends_at, m.first_sequence, m.id)
    ORDER BY before.ends_at DESC, before.first_sequence DESC, before.id DESC LIMIT 3
)::text[] WHERE m.id = ANY(%s)
"""


def link_by_time(apps: Any, schema_editor: Any) -> None:
    """Links the moments of everybody whose chain is in another order."""
    with schema_editor.connection.cursor() as cursor:
        people = _rows(cursor, PEOPLE_SQL, 0, PEOPLE)
        while people:
            wrong = _rows(cursor, WRONG_SQL, [pk for (pk,) in people])
            for start in range(0, len(wrong), MOMENTS):
                _link(cursor, wrong[start : start + MOMENTS])
            people = _rows(cursor, PEOPLE_SQL, people[-1][0], PEOPLE)


def _link(cursor: Any, wrong: list[tuple[int, int]]) -> None:
    with transaction.atomic():
        cursor.execute(LOCK_SQL, [sorted({user for _, user in wrong})])
        cursor.execute(LINK_SQL, [[pk for pk, _ in wrong]])


def _rows(cursor: Any, sql: str, *parameters: Any) -> list[Any]:
    cursor.execute(sql, parameters)
    return list(cursor.fetchall())


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("moments_app", "0024_moments_in_time")]

    operations = [
        migrations.RunPython(link_by_time, migrations.RunPython.noop, elidable=True),
        migrations.AddField(
            model_name="moment",
            name="journey",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="The person's way up to here, as it was told when the build was made that this moment ends.",
            ),
        ),
    ]
