import django.db.models.deletion
from django.db import migrations, models

FOUND, FOUND_NOW = "state <> ''evicted''", "state NOT IN (''evicted'', ''line'')"
SEARCHES = ("recall_moments_app_memoryatom", "recall_moments_app_memoryatom_then")
REPLACE = "DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('{}'::regproc), '{}', '{}'); END $do$"


class Migration(migrations.Migration):
    """Columns of the lines of streams' texts, which word searches don't find."""

    replaces = [
        ("moments_app", "0118_help_texts"),
        ("moments_app", "0119_lines_of_texts"),
    ]

    dependencies = [("moments_app", "0117_pinned_texts_are_statements")]

    operations = [
        migrations.AddField(
            model_name="memoryatom",
            name="merged_into",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                editable=False,
                help_text="Line that contains the item, in the stream's text. Blank if no line contains the item.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="parts",
                to="moments_app.memoryatom",
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="position",
            field=models.PositiveIntegerField(
                blank=True,
                editable=False,
                help_text="Position of the line in the stream's text. Blank if the item is not a line.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="consolidated_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="For a line: when a consolidation wrote it. For other items: when a consolidation first "
                "processed them.",
                null=True,
            ),
        ),
        *(
            migrations.RunSQL(REPLACE.format(name, FOUND, FOUND_NOW), REPLACE.format(name, FOUND_NOW, FOUND))
            for name in SEARCHES
        ),
    ]
