from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [
        ("sessions_app", "0009_recall_plan"),
    ]

    operations = [
        AddIndexConcurrently("session", BrinIndex(autosummarize=True, fields=["created_at"], name="session_created")),
        AddIndexConcurrently("message", BrinIndex(autosummarize=True, fields=["created_at"], name="message_created")),
        AddIndexConcurrently("event", models.Index(fields=["type", "-created_at", "-id"], name="event_type_newest")),
    ]
