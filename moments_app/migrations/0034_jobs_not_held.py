from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

SUBJECT = Coalesce("user_id", -F("stream_id"), 0)


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while jobs are asked for

    dependencies = [
        ("moments_app", "0033_circuit"),
    ]

    operations = [
        RemoveIndexConcurrently("job", "job_in_turn"),
        AddIndexConcurrently(
            "job",
            models.Index(
                F("process"), SUBJECT, F("run_after"), condition=Q(status="queued", circuit=None), name="job_in_turn"
            ),
        ),
        AddIndexConcurrently(
            "job",
            models.Index(
                F("circuit"), SUBJECT, F("id"), condition=Q(status="queued", circuit__isnull=False), name="job_held"
            ),
        ),
        AddIndexConcurrently(
            "enginecall",
            models.Index(
                fields=["prompt_version"], condition=Q(error_kind="invalid_answer"), name="engine_call_invalid"
            ),
        ),
    ]
