from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built while work goes on

    dependencies = [
        ("moments_app", "0048_said_alike"),
    ]

    operations = [
        migrations.AddField(
            model_name="enginecall",
            name="dropped_count",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="Sentences and items that the conversation didn't bear out."
            ),
        ),
        migrations.AddField(
            model_name="enginecall",
            name="dropped_reasons",
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text="Their number by reason."),
        ),
        migrations.AddField(
            model_name="enginecall",
            name="kept_count",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="Sentences and items of the answer that were kept."
            ),
        ),
        AddIndexConcurrently(
            "enginecall",
            models.Index(
                condition=models.Q(("kept_count__gt", 0), ("dropped_count__gt", 0), _connector="OR"),
                fields=["prompt_version", "created_at"],
                include=("kept_count", "dropped_count"),
                name="engine_call_judged",
            ),
        ),
    ]
