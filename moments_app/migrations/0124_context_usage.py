import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import APPLICATIONS, let_operators


class Migration(migrations.Migration):
    """The tokens of served contexts by application and day."""

    dependencies = [
        ("moments_app", "0123_help_texts"),
        ("sessions_app", "0056_help_texts"),
    ]

    operations = [
        migrations.CreateModel(
            name="ContextUsage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="Day in UTC.")),
                ("contexts", models.BigIntegerField()),
                ("context_tokens", models.BigIntegerField()),
                ("transcript_tokens", models.BigIntegerField()),
                (
                    "application",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["day"], name="context_usage_day")],
                "constraints": [
                    models.UniqueConstraint(fields=("application", "day"), name="context_usage_unique"),
                ],
            },
        ),
        let_operators("moments_app_contextusage", f"application_id = ANY ({APPLICATIONS})"),
    ]
