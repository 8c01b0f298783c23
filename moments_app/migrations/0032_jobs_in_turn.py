from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    atomic = False  # the index is built while jobs are asked for

    dependencies = [
        ("moments_app", "0031_as_made_today"),
    ]

    operations = [
        AddIndexConcurrently(
            "job",
            models.Index(
                F("process"),
                Coalesce("user_id", -F("stream_id"), 0),
                F("run_after"),
                condition=Q(status="queued"),
                name="job_in_turn",
            ),
        ),
    ]
