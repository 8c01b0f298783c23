import django.db.models.deletion
from django.db import migrations, models

FOUND, FOUND_NOW = "state <> ''evicted''", "state NOT IN (''evicted'', ''line'')"
SEARCHES = ("recall_moments_app_memoryatom", "recall_moments_app_memoryatom_then")
REPLACE = "DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('{}'::regproc), '{}', '{}'); END $do$"


class Migration(migrations.Migration):
    """Columns of the lines of streams' texts, which word searches don't find."""

    dependencies = [("moments_app", "0118_help_texts")]

    operations = [
        migrations.AddField(
            model_name="memoryatom",
            name="merged_into",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                editable=False,
                help_text="The line of the stream's text that contains the item. Blank if no line does.",
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
                help_text="The place of a line in its stream's text. Blank if the item is not a line.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="consolidated_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When a consolidation wrote the line, or first received the item, even if no line contains "
                "the item.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="memoryatom",
            name="state",
            field=models.CharField(
                choices=[
                    ("active", "Active"),
                    ("absorbed", "Absorbed"),
                    ("ended", "Ended"),
                    ("evicted", "Evicted"),
                    ("line", "Line"),
                ],
                default="active",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="memorystream",
            name="consolidated_content",
            field=models.TextField(
                blank=True, help_text="Text into which consolidations merge observations, one statement per line."
            ),
        ),
        *(
            migrations.RunSQL(REPLACE.format(name, FOUND, FOUND_NOW), REPLACE.format(name, FOUND_NOW, FOUND))
            for name in SEARCHES
        ),
    ]
