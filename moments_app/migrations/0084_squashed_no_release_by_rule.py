"""Drop the columns of the rule that released shared memory.

Each table is locked by one statement of its own, for a moment. A column's indexes go with it.
"""

from django.db import migrations

ATOMS, STREAMS, RELEASES = "moments_app_memoryatom", "moments_app_memorystream", "moments_app_release"


def dropped(
    table: str, *fields: tuple[str, str], state: list[migrations.operations.base.Operation]
) -> migrations.RunSQL:
    """Return an operation that drops columns that may be gone already.

    Args:
        table: that has them.
        fields: each column's name and its definition, with which a reversal adds it again.
        state: the same as operations on models.
    """
    drop = ", ".join(f"DROP COLUMN IF EXISTS {name}" for name, _ in fields)
    add = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} {definition}" for name, definition in fields)
    return migrations.RunSQL(f"ALTER TABLE {table} {drop}", f"ALTER TABLE {table} {add}", state_operations=state)


class Migration(migrations.Migration):
    atomic = False  # so that no table waits for another

    replaces = [
        ("moments_app", "0084_no_release_by_rule"),
    ]

    dependencies = [("moments_app", "0083_rule_releases_revoked")]

    operations = [
        dropped(
            ATOMS,
            ("alike", "bigint NULL"),
            ("left_to_operator", "varchar(255) DEFAULT '' NOT NULL"),
            state=[
                migrations.RemoveIndex("memoryatom", "atom_alike"),
                migrations.RemoveIndex("memoryatom", "atom_to_group"),
                migrations.RemoveField("memoryatom", "alike"),
                migrations.RemoveField("memoryatom", "left_to_operator"),
            ],
        ),
        dropped(
            STREAMS,
            ("shares_by_rule", "boolean DEFAULT false NOT NULL"),
            state=[migrations.RemoveField("memorystream", "shares_by_rule")],
        ),
        dropped(
            RELEASES,
            ("rule", "varchar(16) DEFAULT 'operator' NOT NULL"),
            ("quorum", "smallint DEFAULT 0 NOT NULL CHECK (quorum >= 0)"),
            state=[
                migrations.RemoveField("release", "rule"),
                migrations.RemoveField("release", "quorum"),
            ],
        ),
    ]
