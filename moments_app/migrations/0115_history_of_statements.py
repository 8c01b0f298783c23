"""Create the history of statements."""

import uuid

import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import moments_app.models.retraction
from sessions_app.limited_operators import let_operators, of_person, seen
from sessions_app.migrations._state_only import StateOnly
from sessions_app.row_security import MAY_CHANGE, ROLE, protect

TABLE, STATEMENTS = "moments_app_statementchange", "moments_app_memoryatom"
SEEN = seen(TABLE, STATEMENTS, "statement_id")


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0114_episode_drafts")]

    operations = [
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
                        help_text="The columns that changed, with their values before the change.",
                    ),
                ),
                (
                    "actor",
                    models.CharField(
                        help_text="Who changed the statement, such as key:…, operator:… or job:….", max_length=255
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        help_text="Why the statement changed, such as correction:… or retraction:…. Blank if the "
                        "action says it all.",
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
                        help_text="The person whose memory the statement belongs to. Blank if it belongs to a shard.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["statement", "-id"], name="change_of_statement")]},
        ),
        protect(TABLE),
        migrations.RunSQL(
            f"CREATE POLICY everybodys_changed ON {TABLE} TO {ROLE} "
            f"USING (user_id IS NULL AND {SEEN} AND {MAY_CHANGE})",
            f"DROP POLICY everybodys_changed ON {TABLE}",
        ),
        let_operators(TABLE, f"CASE WHEN user_id IS NULL THEN {SEEN} ELSE {of_person(TABLE)} END"),
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    "correction",
                    "changes",
                    models.JSONField(
                        default=list,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        help_text="Each changed text, before and after the correction.",
                    ),
                )
            ]
        ),
    ]
