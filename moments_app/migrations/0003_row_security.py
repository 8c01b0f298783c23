from django.db import migrations

from sessions_app.row_security import grant, protect


class Migration(migrations.Migration):
    """Requests see the rows of one person only, and may put work into the queue."""

    dependencies = [
        ("moments_app", "0002_initial"),
        ("sessions_app", "0002_row_security"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        protect("moments_app_moment"),
        protect("moments_app_job"),
        # Deleting a session deletes its jobs; what their calls cost stays on record.
        grant("moments_app_enginecall", "SELECT (id, job_id), UPDATE (job_id)"),
        grant("django_q_ormq", "SELECT (id), INSERT"),
    ]
