import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

import sessions_app.models.user_profile
from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0047_limits_of_keys_and_applications"),
    ]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterModelOptions(
                    name="loginlimit",
                    options={
                        "verbose_name": "application limit",
                        "verbose_name_plural": "applications that the login may see (none: all)",
                    },
                ),
                migrations.AlterModelOptions(
                    name="session",
                    options={"permissions": [("preview_context", "Can preview contexts of a session")]},
                ),
                migrations.AlterModelOptions(
                    name="userprofile",
                    options={
                        "permissions": [
                            ("read_userprofile", "Can view all data of a person"),
                            ("export_userprofile", "Can export all data of a person"),
                        ],
                        "verbose_name": "user profile",
                    },
                ),
                migrations.AlterField(
                    model_name="apikey",
                    name="last_used_at",
                    field=models.DateTimeField(blank=True, help_text="Time of the last use, to the minute.", null=True),
                ),
                migrations.AlterField(
                    model_name="apikey",
                    name="user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Limit the key to one user. Blank: a service key for any user.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="application",
                    name="name",
                    field=models.CharField(
                        help_text="Lower-case letters, digits and hyphens.",
                        max_length=64,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "Use lower-case letters, digits and hyphens."
                            )
                        ],
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="block_offsets",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="Position of each part, relative to the first.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="block_sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="First turn of each part that can be read separately.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_count",
                    field=models.PositiveBigIntegerField(help_text="Number of bytes in the file."),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_offset",
                    field=models.BigIntegerField(
                        db_default=0, default=0, help_text="Position of the turns in the file."
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="month",
                    field=models.DateField(help_text="First day of the month, in UTC."),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="name",
                    field=models.CharField(help_text="Name of the file in the storage.", max_length=255),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="sha256",
                    field=models.CharField(help_text="SHA-256 of these bytes.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="dailyusage",
                    name="day",
                    field=models.DateField(help_text="Day in UTC."),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="actor",
                    field=models.CharField(help_text="The actor: key:…, operator:… or job:….", max_length=255),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Application of an event without a person. Blank: the person's application, or "
                        "site-wide.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform received it. Retention counts from here.",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="created_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="When the message was said, according to the client.",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="external_id",
                    field=models.CharField(
                        blank=True, help_text="The client's own id of the message.", max_length=255, null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="name",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the speaker, if there are several people or agents.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="payload",
                    field=models.JSONField(
                        blank=True, help_text="Structured content, such as tool calls and tool results.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="retracted_at",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the turn was retracted. It stays in the transcript, but no engine or "
                        "context gets it.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="said_hash",
                    field=models.BinaryField(
                        help_text="Hash of an archived turn with an external_id, to compare repeated messages.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="tokens",
                    field=models.PositiveIntegerField(default=0, help_text="Estimated number of tokens."),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns at the last build of moments. The next build counts from here.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_total_tokens",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of tokens at the last build of moments."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="compact_on_request",
                    field=models.BooleanField(
                        blank=True,
                        help_text="Compact the session before a load or context. Blank: use the setting.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="counted_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns when the person's words were last counted."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="embedded_sequence",
                    field=models.BigIntegerField(
                        default=-1, help_text="Sequence of the last turn that has a vector or needs none. −1: none."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns when memory was last formed."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_weighted_tokens",
                    field=models.FloatField(
                        default=0, help_text="Number of weighted tokens when memory was last formed."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="kept_from_sequence",
                    field=models.BigIntegerField(
                        default=0, help_text="Sequence of the first turn that is neither archived nor deleted."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_activity_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now, help_text="Time of the latest message."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform last received a message. Idle time counts from here.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_formation_sequence",
                    field=models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn that memory was formed from.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_moment_message_idx",
                    field=models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn in a moment.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_sequence",
                    field=models.BigIntegerField(default=-1, help_text="Sequence of the latest turn. −1: none."),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="legal_hold",
                    field=models.BooleanField(
                        default=False, help_text="Whether retention must not archive or delete turns of the session."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="live_from_sequence",
                    field=models.BigIntegerField(default=0, help_text="Sequence of the first live turn."),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="message_count",
                    field=models.PositiveBigIntegerField(default=0, help_text="Number of turns, without boundaries."),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="restored_at",
                    field=models.DateTimeField(blank=True, help_text="When archived turns were restored.", null=True),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="retraction_count",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="Number of retractions and undone retractions. Work that started before the "
                        "latest one is repeated.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="session_id",
                    field=models.CharField(
                        help_text="The application's own id of the session, unique per user.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="source",
                    field=models.CharField(
                        default="api", help_text="Source of the session: api, discord, import, ….", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="summarised_sequence",
                    field=models.BigIntegerField(
                        blank=True, help_text="Sequence of the last turn covered by a summary.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="weighted_tokens",
                    field=models.FloatField(default=0, help_text="Number of tokens, weighted by role."),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="is_test",
                    field=models.BooleanField(
                        db_default=models.Value(False),
                        default=False,
                        editable=False,
                        help_text="A test person, used by operators in the playground.",
                        verbose_name="test person",
                    ),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="summary",
                    field=models.TextField(blank=True, help_text="Summary of what is known about the person."),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="timezone",
                    field=models.CharField(
                        default="UTC",
                        help_text="IANA time zone, such as Europe/Berlin.",
                        max_length=64,
                        validators=[sessions_app.models.user_profile.validate_timezone],
                    ),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="user_id",
                    field=models.CharField(help_text="The application's own id of the person.", max_length=255),
                ),
            ]
        )
    ]
