from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the index is built while events are written

    dependencies = [
        ("sessions_app", "0018_names_no_longer_unique"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="session",
            options={"permissions": [("preview_context", "Can see the context of a session")]},
        ),
        migrations.AlterModelOptions(
            name="userprofile",
            options={
                "permissions": [
                    ("read_userprofile", "Can read what is kept of a person all together"),
                    ("export_userprofile", "Can export everything that is kept of a person"),
                ],
                "verbose_name": "user profile",
            },
        ),
        AddIndexConcurrently(
            "event",
            models.Index(
                fields=["user_pk", "-created_at", "-id"],
                condition=Q(type__in=("user_read", "user_exported")),
                name="event_reading",
            ),
        ),
    ]
