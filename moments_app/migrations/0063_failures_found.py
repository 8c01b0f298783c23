"""What the jobs and calls of a failure are found by."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [("moments_app", "0062_failures")]

    operations = [
        AddIndexConcurrently(
            "enginecall",
            models.Index(fields=["failure", "-id"], condition=Q(failure__isnull=False), name="engine_call_failure"),
        ),
        AddIndexConcurrently(
            "job",
            models.Index(fields=["failure", "status", "id"], condition=Q(failure__isnull=False), name="job_of_failure"),
        ),
    ]
