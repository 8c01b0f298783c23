from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [
        ("moments_app", "0018_moment_latest"),
    ]

    operations = [
        AddIndexConcurrently("moment", BrinIndex(autosummarize=True, fields=["created_at"], name="moment_created")),
        AddIndexConcurrently("job", models.Index(fields=["process", "-id"], name="job_process_newest")),
        AddIndexConcurrently(
            "enginecall",
            models.Index(condition=Q(ok=False), fields=["-created_at", "-id"], name="engine_call_failed"),
        ),
    ]
