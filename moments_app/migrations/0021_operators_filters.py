import django.contrib.postgres.indexes
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the operator's lists of moments and summaries filter by."""

    atomic = False

    dependencies = [
        ("moments_app", "0020_prompt_previous_version"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="moment",
            index=models.Index(fields=["category", "-id"], name="moment_category_newest"),
        ),
        AddIndexConcurrently(
            model_name="moment",
            index=models.Index(fields=["starts_at"], name="moment_starts_at"),
        ),
        AddIndexConcurrently(
            model_name="moment",
            index=models.Index(fields=["key"], name="moment_key_prefix", opclasses=["varchar_pattern_ops"]),
        ),
        AddIndexConcurrently(
            model_name="moment",
            index=django.contrib.postgres.indexes.GinIndex(fields=["emotion_tags"], name="moment_emotions"),
        ),
        AddIndexConcurrently(
            model_name="summary",
            index=models.Index(condition=models.Q(("status", "failed")), fields=["-id"], name="summary_failed"),
        ),
    ]
