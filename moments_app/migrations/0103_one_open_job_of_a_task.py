from django.db import migrations, models
from django.db.models import Q

NEW, OLD = "job_one_open", "job_one_open_per_subject"
SUBJECT = "moments_app_job (process, user_id, session_id, stream_id"
OPEN = "NULLS NOT DISTINCT WHERE status IN ('queued', 'processing')"


def drop(name: str) -> str:
    return f"DROP INDEX CONCURRENTLY IF EXISTS {name}"


def build(name: str, columns: str) -> list[str]:
    """Return statements that build a unique index while the table is written to."""
    return [drop(name), f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {columns} {OPEN}"]


class Migration(migrations.Migration):
    """Of a task, at most one job is open."""

    atomic = False  # the index is built beside writes

    dependencies = [("moments_app", "0102_task_of_a_job")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(build(NEW, f"{SUBJECT}, task)"), drop(NEW)),
                migrations.RunSQL(drop(OLD), build(OLD, f"{SUBJECT})")),
            ],
            state_operations=[
                migrations.RemoveConstraint("job", OLD),
                migrations.AddConstraint(
                    "job",
                    models.UniqueConstraint(
                        fields=("process", "user", "session", "stream", "task"),
                        condition=Q(status__in=["queued", "processing"]),
                        nulls_distinct=False,
                        name=NEW,
                    ),
                ),
            ],
        ),
    ]
