"""What a shard learns from one person is a candidate, theirs alone, and what others see of it is a release."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    RemoveIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations, models
from django.db.models import Q

from sessions_app.row_security import ROLE, protect

ATOMS = "moments_app_memoryatom"
UNIQUE, UNIQUE_BEFORE = "atom_unique_of_person_while_active", "atom_unique_while_active"


def _unique(name: str, columns: str) -> tuple[str, str]:
    """Return SQL that builds a unique index while the table is written to, and SQL that drops it."""
    create = f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {ATOMS} ({columns}) NULLS NOT DISTINCT WHERE state = 'active'"
    return create, f"DROP INDEX CONCURRENTLY IF EXISTS {name}"


CREATE, DROP = _unique(UNIQUE, "stream_id, user_id, content_hash")
CREATE_BEFORE, DROP_BEFORE = _unique(UNIQUE_BEFORE, "stream_id, content_hash")


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [("moments_app", "0038_refused_texts"), ("sessions_app", "0015_as_made_today")]

    operations = [
        migrations.AddField(
            "memoryatom",
            "is_candidate",
            models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="In a shard, and learned from one person: it is theirs alone. What is released of it is an "
                "item of its own.",
            ),
        ),
        migrations.AddField(
            "memoryatom",
            "reviewed_at",
            models.DateTimeField(
                blank=True, editable=False, help_text="When an operator decided on the candidate.", null=True
            ),
        ),
        AddConstraintNotValid(
            "memoryatom",
            models.CheckConstraint(
                condition=Q(is_candidate=False) | Q(user__isnull=False), name="atom_candidate_has_person"
            ),
        ),
        ValidateConstraint("memoryatom", "atom_candidate_has_person"),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["stream", "is_candidate", "state", "atom_type", "formed_at", "id"], name="atom_in_stream"
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(condition=Q(is_candidate=True), fields=["user", "id"], name="atom_candidates"),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                condition=Q(is_candidate=True, reviewed_at__isnull=True, state="active"),
                fields=["id"],
                name="atom_to_review",
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                condition=Q(
                    atom_type="observation",
                    is_candidate=False,
                    is_pinned=False,
                    shown_in__isnull=True,
                    state="active",
                ),
                fields=["stream"],
                name="atom_new",
            ),
        ),
        RemoveIndexConcurrently("memoryatom", "atom_stream_order"),
        RemoveIndexConcurrently("memoryatom", "atom_fresh"),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(CREATE, DROP),
                migrations.RunSQL(DROP_BEFORE, CREATE_BEFORE),
            ],
            state_operations=[
                migrations.AddConstraint(
                    "memoryatom",
                    models.UniqueConstraint(
                        condition=Q(state="active"),
                        fields=("stream", "user", "content_hash"),
                        name=UNIQUE,
                        nulls_distinct=False,
                    ),
                ),
                migrations.RemoveConstraint("memoryatom", UNIQUE_BEFORE),
            ],
        ),
        migrations.CreateModel(
            name="Release",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("release_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("wording", models.TextField()),
                ("rule", models.CharField(choices=[("operator", "Operator")], default="operator", max_length=16)),
                ("actor", models.CharField(help_text="Who decided: operator:…", max_length=255)),
                ("note", models.CharField(blank=True, max_length=2000)),
                (
                    "signature",
                    models.CharField(editable=False, help_text="Of wording, stream and time.", max_length=255),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_by", models.CharField(blank=True, max_length=255)),
                (
                    "atom",
                    models.OneToOneField(
                        blank=True,
                        help_text="The item that everybody sees who sees the shard.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="release",
                        to="moments_app.memoryatom",
                    ),
                ),
                (
                    "narrower",
                    models.ForeignKey(
                        blank=True,
                        help_text="The release to one agent's users that this one extended to every agent's.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="wider",
                        to="moments_app.release",
                    ),
                ),
                (
                    "replaces",
                    models.ForeignKey(
                        blank=True,
                        help_text="In other words.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replaced_by",
                        to="moments_app.release",
                    ),
                ),
                (
                    "stream",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="releases",
                        to="moments_app.memorystream",
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.CreateModel(
            name="ReleaseSource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "atom",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="released_in",
                        to="moments_app.memoryatom",
                    ),
                ),
                (
                    "release",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sources",
                        to="moments_app.release",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("release", "atom"), name="release_source_once")]},
        ),
        # Requests see no release, and of sources a person's own. Whoever deletes a session looks for what refers to it.
        protect("moments_app_releasesource", privileges="SELECT, UPDATE (atom_id)"),
        migrations.RunSQL(
            f"""
            ALTER TABLE moments_app_release ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_release TO {ROLE} USING (false);
            GRANT SELECT, UPDATE (atom_id) ON moments_app_release TO {ROLE};
            """,
            f"""
            REVOKE ALL ON moments_app_release FROM {ROLE};
            DROP POLICY acting_user ON moments_app_release;
            ALTER TABLE moments_app_release DISABLE ROW LEVEL SECURITY;
            """,
        ),
    ]
