"""The transcript, whose rows requests see one person's of, and find by their words."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.utils.timezone
from django.db import migrations, models

import sessions_app.models.user_profile
from sessions_app.migrations._row_security import CREATE_ROLE
from sessions_app.migrations._word_search import CREATE_FUNCTIONS, add_search_vector, recall
from sessions_app.row_security import protect

TURNS = "kind = 'turn' AND role <> 'system'"


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0001_initial"),
        ("sessions_app", "0002_row_security"),
        ("sessions_app", "0003_formation"),
        ("sessions_app", "0004_search"),
        ("sessions_app", "0005_embeddings"),
        ("sessions_app", "0006_lifecycle"),
    ]

    initial = True

    dependencies = [
        ("moments_app", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="UserProfile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user_id",
                    models.CharField(help_text="The application's own id of this person.", max_length=255, unique=True),
                ),
                ("summary", models.TextField(blank=True, help_text="What is known of this person.")),
                (
                    "interests",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "preferred_topics",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "timezone",
                    models.CharField(
                        default="UTC",
                        help_text="IANA name, e.g. Europe/Berlin.",
                        max_length=64,
                        validators=[sessions_app.models.user_profile.validate_timezone],
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "verbose_name": "user profile",
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("type", models.CharField(max_length=64)),
                ("actor", models.CharField(help_text="Who did it: key:…, operator:… or job:…", max_length=255)),
                ("user_pk", models.BigIntegerField(blank=True, null=True)),
                ("session_pk", models.BigIntegerField(blank=True, null=True)),
                ("payload", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["-created_at", "-id"], name="event_newest"),
                    models.Index(fields=["user_pk", "-id"], name="event_user"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "session_id",
                    models.CharField(help_text="The application's own id, unique for this user.", max_length=255),
                ),
                ("agent_id", models.CharField(default="default", max_length=255)),
                (
                    "source",
                    models.CharField(
                        default="api", help_text="Where it comes from: api, discord, import, …", max_length=64
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=255)),
                (
                    "status",
                    models.CharField(
                        choices=[("active", "Active"), ("cleared", "Cleared")], default="active", max_length=16
                    ),
                ),
                (
                    "message_count",
                    models.PositiveBigIntegerField(default=0, help_text="Turns, partition events not counted."),
                ),
                ("total_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "last_sequence",
                    models.BigIntegerField(default=-1, help_text="Sequence of the newest turn; −1: none."),
                ),
                ("last_activity_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "last_moment_message_idx",
                    models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn that is in a moment.", null=True
                    ),
                ),
                (
                    "built_message_count",
                    models.PositiveBigIntegerField(
                        default=0,
                        help_text="Turns there were when moments were last built; the next build counts from here.",
                    ),
                ),
                (
                    "built_total_tokens",
                    models.PositiveBigIntegerField(default=0, help_text="Tokens there were at that time."),
                ),
                ("live_from_sequence", models.BigIntegerField(default=0, help_text="First turn of the live window.")),
                ("live_tokens", models.PositiveBigIntegerField(default=0)),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "formed_message_count",
                    models.PositiveBigIntegerField(default=0, help_text="Turns there were at that time."),
                ),
                (
                    "formed_weighted_tokens",
                    models.FloatField(default=0, help_text="Weighted tokens there were at that time."),
                ),
                (
                    "last_formation_sequence",
                    models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn formed into memory streams.", null=True
                    ),
                ),
                (
                    "weighted_tokens",
                    models.FloatField(default=0, help_text="Tokens of all turns, weighted by who speaks."),
                ),
                (
                    "counted_message_count",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Turns there were when its person's words were last counted."
                    ),
                ),
                (
                    "embedded_sequence",
                    models.BigIntegerField(
                        default=-1, help_text="Sequence of the last turn that has a vector, or needs none; −1: none."
                    ),
                ),
                (
                    "compact_on_request",
                    models.BooleanField(
                        blank=True,
                        help_text="Digest when a load or context is asked for. Blank: as set for all sessions.",
                        null=True,
                    ),
                ),
                (
                    "kept_from_sequence",
                    models.BigIntegerField(
                        default=0,
                        help_text="First turn that is still in the transcript's table, neither archived nor deleted.",
                    ),
                ),
                (
                    "legal_hold",
                    models.BooleanField(default=False, help_text="Nothing of the transcript is archived or deleted."),
                ),
                (
                    "restored_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="When archived turns were brought back; they are kept for a while.",
                        null=True,
                    ),
                ),
                (
                    "summarised_sequence",
                    models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn that a summary or a digest covers.", null=True
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["user", "-last_activity_at", "-id"], name="session_user_activity"),
                    models.Index(fields=["-last_activity_at", "-id"], name="session_activity"),
                    models.Index(
                        condition=models.Q(("message_count__gt", models.F("formed_message_count"))),
                        fields=["last_activity_at"],
                        name="session_unformed",
                    ),
                    models.Index(
                        condition=models.Q(
                            (
                                "message_count__gt",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("counted_message_count"), "*", models.Value(1.25)
                                ),
                            )
                        ),
                        fields=["user"],
                        name="session_grown",
                    ),
                    models.Index(
                        condition=models.Q(("last_sequence__gte", models.F("live_from_sequence"))),
                        fields=["last_activity_at", "id"],
                        name="session_live",
                    ),
                    models.Index(
                        condition=models.Q(("last_sequence__gte", models.F("kept_from_sequence"))),
                        fields=["id"],
                        name="session_kept",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("user", "session_id"), name="session_unique_for_user")],
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.BigIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("turn", "Turn"), ("partition", "Partition")], default="turn", max_length=16
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("user", "User"), ("assistant", "Assistant"), ("tool", "Tool"), ("system", "System")],
                        max_length=16,
                    ),
                ),
                ("tool_name", models.CharField(blank=True, max_length=255)),
                ("content", models.TextField(blank=True)),
                (
                    "payload",
                    models.JSONField(blank=True, help_text="Structured content: tool calls, tool results.", null=True),
                ),
                ("tokens", models.PositiveIntegerField(default=0, help_text="Estimated when appended.")),
                (
                    "external_id",
                    models.CharField(blank=True, help_text="The client's own message id.", max_length=255, null=True),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("metadata", models.JSONField(blank=True, default=dict)),
                (
                    "moment",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="messages",
                        to="moments_app.moment",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="messages",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="messages",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "retracted_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Kept in the transcript, but no longer believed: no engine or context gets it.",
                        null=True,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("kind", "partition")),
                        fields=["session", "user", "sequence", "id"],
                        name="message_partitions",
                    ),
                    models.Index(
                        condition=models.Q(("moment__isnull", False)), fields=["moment"], name="message_moment"
                    ),
                    models.Index(fields=["user", "-created_at", "-id"], name="message_user_newest"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "turn")),
                        fields=("session", "user", "sequence"),
                        name="message_turn_sequence_unique",
                    ),
                    models.UniqueConstraint(fields=("session", "external_id"), name="message_external_id_unique"),
                    models.CheckConstraint(condition=models.Q(("sequence__gte", 0)), name="message_sequence_from_zero"),
                    models.CheckConstraint(
                        condition=models.Q(("kind", "turn"), ("role", "tool"), _connector="OR"),
                        name="message_partition_is_tool",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255)),
                ("prefix", models.CharField(max_length=16, unique=True)),
                ("secret_hash", models.CharField(max_length=64)),
                (
                    "scope",
                    models.CharField(
                        choices=[("read", "Read"), ("write", "Write"), ("admin", "Admin")],
                        default="write",
                        max_length=8,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, help_text="To the minute.", null=True)),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        help_text="Blank: a service key, for any user.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["read", "write", "admin"])), name="api_key_scope_known"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Archive",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.DateField(help_text="Its first day, UTC.")),
                ("name", models.CharField(help_text="Of the file, in the storage.", max_length=255, unique=True)),
                ("first_sequence", models.BigIntegerField()),
                ("last_sequence", models.BigIntegerField()),
                ("turn_count", models.PositiveBigIntegerField()),
                ("byte_count", models.PositiveBigIntegerField(help_text="Of the file.")),
                ("sha256", models.CharField(help_text="Of the file.", max_length=64)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="archives",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="archives",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("session", "month"), name="archive_one_a_month")],
            },
        ),
        migrations.CreateModel(
            name="ProfileVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("summary", models.TextField(blank=True)),
                (
                    "interests",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "preferred_topics",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "actor",
                    models.CharField(help_text="Who changed it then: key:…, operator:… or job:…", max_length=255),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["user", "-id"], name="profile_version_newest")],
            },
        ),
        CREATE_ROLE,
        protect("sessions_app_userprofile", "id", "SELECT, UPDATE"),
        protect("sessions_app_session"),
        protect("sessions_app_message"),
        protect("sessions_app_event", "user_pk", "SELECT, INSERT"),
        protect("sessions_app_archive", privileges="SELECT, DELETE"),
        protect("sessions_app_profileversion", privileges="SELECT, INSERT"),
        CREATE_FUNCTIONS,
        add_search_vector("sessions_app_message", "content"),
        recall("sessions_app_message", scope="'u' || user_id", time="created_at", condition=TURNS),
    ]
