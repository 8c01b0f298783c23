"""Episodes that wait to be published as moments, and the history of statements."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import moments_app.models.retraction
from sessions_app.limited_operators import let_operators, of_person, seen
from sessions_app.row_security import MAY_CHANGE, ROLE, protect

DRAFTS, CHANGES = "moments_app_episodedraft", "moments_app_statementchange"
SEEN = seen(CHANGES, "moments_app_memoryatom", "statement_id")


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0114_episode_drafts"),
        ("moments_app", "0115_history_of_statements"),
    ]

    dependencies = [("moments_app", "0112_people_of_statements")]

    operations = [
        migrations.CreateModel(
            name="EpisodeDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first_sequence", models.BigIntegerField()),
                ("last_sequence", models.BigIntegerField()),
                ("name", models.CharField(max_length=255)),
                ("summary", models.TextField()),
                ("detail", models.TextField(blank=True)),
                (
                    "topic_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "emotion_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "present_persons",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("engine", models.CharField(max_length=255)),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.job",
                    ),
                ),
                (
                    "prompt_version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.promptversion",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
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
                    models.UniqueConstraint(fields=("session", "first_sequence"), name="episode_draft_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("first_sequence__lte", models.F("last_sequence"))),
                        name="episode_draft_range_in_order",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StatementChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("change_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("edited", "Edited"),
                            ("moved", "Moved"),
                            ("corrected", "Corrected"),
                            ("withdrawn", "Withdrawn"),
                            ("ended", "Ended"),
                            ("superseded", "Superseded"),
                            ("reopened", "Reopened"),
                            ("merged", "Merged"),
                            ("split", "Split"),
                            ("evicted", "Evicted"),
                            ("restored", "Restored"),
                            ("retracted", "Retracted"),
                            ("undone", "Undone"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "before",
                    models.JSONField(
                        default=dict,
                        encoder=moments_app.models.retraction.ExactEncoder,
                        help_text="Names of the changed columns, with the values before the change.",
                    ),
                ),
                (
                    "actor",
                    models.CharField(
                        help_text="What changed the statement, such as an API key (key:…), an operator (operator:…) or "
                        "a job (job:…).",
                        max_length=255,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        help_text="Reason for the change, for example a correction (correction:…) or a retraction "
                        "(retraction:…). Blank if the action explains the change.",
                        max_length=255,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "statement",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="moments_app.memoryatom",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        help_text="The person to whom the statement belongs. Blank if the statement belongs to a "
                        "shard.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["statement", "-id"], name="change_of_statement")],
            },
        ),
        protect(DRAFTS),
        let_operators(DRAFTS, of_person(DRAFTS)),
        protect(CHANGES),
        migrations.RunSQL(
            f"CREATE POLICY everybodys_changed ON {CHANGES} TO {ROLE} "
            f"USING (user_id IS NULL AND {SEEN} AND {MAY_CHANGE})",
            f"DROP POLICY everybodys_changed ON {CHANGES}",
        ),
        let_operators(CHANGES, f"CASE WHEN user_id IS NULL THEN {SEEN} ELSE {of_person(CHANGES)} END"),
    ]
