"""Move probes and trials of prompts to the extra `lab`, which takes their tables over.

Each statement can run again. Each table is locked by one statement of its own, for a moment.
"""

from typing import Any

from django.apps import apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# A table comes before those that it refers to.
TABLES = ("moments_app_trialside", "moments_app_prompttrial", "moments_app_proberesult", "moments_app_probe")
MODELS = ("TrialSide", "PromptTrial", "ProbeResult", "Probe")
IS_TRIED = "ALTER TABLE moments_app_promptversion ADD COLUMN IF NOT EXISTS is_tried boolean DEFAULT false NOT NULL"
TRIED = """
    DO $$ BEGIN IF to_regclass('moments_app_prompttrial') IS NOT NULL THEN
        UPDATE moments_app_promptversion SET is_tried = true
        WHERE NOT is_tried AND id IN (SELECT version_id FROM moments_app_prompttrial WHERE tried > 0);
    END IF; END $$
"""
DROP_IF_EMPTY = """
    DO $$ BEGIN IF to_regclass('{table}') IS NOT NULL THEN
        LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;
        IF NOT EXISTS (SELECT FROM {table}) THEN DROP TABLE {table}; END IF;
    END IF; END $$
"""


def drop_unless_taken_over(_: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Drop empty tables where the extra isn't installed; it makes those that are missing."""
    if apps.is_installed("memory_extras.lab"):
        return
    for table in TABLES:
        schema_editor.execute(DROP_IF_EMPTY.format(table=table), None)


class Migration(migrations.Migration):
    atomic = False  # so that no table waits for another

    replaces = [
        ("moments_app", "0088_without_probes"),
    ]

    dependencies = [("moments_app", "0085_squashed_0097_kinds_of_statements")]

    operations = [
        migrations.RunSQL(
            IS_TRIED,
            state_operations=[
                migrations.AddField(
                    "promptversion",
                    "is_tried",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether an operator has tried the version on sample sessions or streams.",
                    ),
                )
            ],
        ),
        migrations.RunSQL(TRIED),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop_unless_taken_over)],
            state_operations=[migrations.DeleteModel(name) for name in MODELS],
        ),
    ]
