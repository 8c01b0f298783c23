from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    """Count turns by the day on which they came, as all else is counted, not by that on which they were said."""

    atomic = False  # the index is built beside writes

    dependencies = [("sessions_app", "0030_test_people")]

    operations = [
        AddIndexConcurrently("message", BrinIndex(fields=["arrived_at"], autosummarize=True, name="message_arrived")),
        RemoveIndexConcurrently("message", "message_created"),
    ]
