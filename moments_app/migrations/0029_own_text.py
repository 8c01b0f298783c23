import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.row_security import protect


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0028_observations_found"),
        ("sessions_app", "0014_archived_turns"),
    ]

    operations = [
        migrations.CreateModel(
            name="OwnText",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.BigIntegerField()),
                (
                    "places",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Of the lines, from 0; blank: the turn has nothing else.",
                        null=True,
                        size=None,
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="own_texts",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "sequence"), name="own_text_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("sequence__gte", 0)), name="own_text_sequence_from_zero"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ServedLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.BigIntegerField(help_text="Of its words; see `served_text`.")),
                ("is_quote", models.BooleanField(help_text="It was served only as what somebody said, word for word.")),
                (
                    "served_on",
                    models.DateField(
                        db_index=True, default=django.utils.timezone.localdate, help_text="Last, to the month."
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("user", "hash"), name="served_line_unique")],
            },
        ),
        # What requests find and note; lines are written behind them, by the tables' owner.
        protect("moments_app_servedline", privileges="SELECT"),
        protect("moments_app_owntext"),
    ]
