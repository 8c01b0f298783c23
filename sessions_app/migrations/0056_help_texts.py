import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0054_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="apikey",
                    name="last_used_at",
                    field=models.DateTimeField(
                        blank=True, help_text="When the key was last used. Updated at most once a minute.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="apikey",
                    name="user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The only user that the key gives access to. Blank for a service key, which "
                        "gives access to all users of the application.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="application",
                    name="name",
                    field=models.CharField(
                        help_text="The name can contain lower-case letters, digits and hyphens.",
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
                        help_text="Byte position of each block, counted from the start of the first block.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="block_sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="Sequence number of the first turn in each block. A block is a part of the "
                        "file that can be read separately.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_count",
                    field=models.PositiveBigIntegerField(help_text="Size of the turns in the file, in bytes."),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_offset",
                    field=models.BigIntegerField(
                        db_default=0, default=0, help_text="Byte position at which the turns start in the file."
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="month",
                    field=models.DateField(help_text="First day of the month in which the turns were sent (UTC)."),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="sha256",
                    field=models.CharField(help_text="SHA-256 hash of the turns as stored in the file.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="actor",
                    field=models.CharField(
                        help_text="What caused the event, such as an API key (key:…), an operator (operator:…) "
                        "or a job (job:…).",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The application that the event belongs to. Blank if the event is about a "
                        "person, or is site-wide.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="external_id",
                    field=models.CharField(
                        blank=True,
                        help_text="The client's own id for the message. Blank if the client gave none.",
                        max_length=255,
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="name",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the speaker in a session with several people or agents.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="said_hash",
                    field=models.BinaryField(
                        help_text="For an archived turn with an external_id: hash of the turn's content. The "
                        "platform uses the hash to recognize a message that a client sends again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns in the session when moments were last built. Only later "
                        "turns count toward the next build.",
                        verbose_name="turns at the last build",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_total_tokens",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of tokens in the session when moments were last built.",
                        verbose_name="tokens at the last build",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="compact_on_request",
                    field=models.BooleanField(
                        blank=True,
                        help_text="Whether the platform compacts the session when a client loads the messages "
                        "or requests a context. If blank, the setting SESSION_COMPACTION__ON_REQUEST "
                        "decides.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="counted_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns in the session when the person's vocabulary was last counted.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="embedded_sequence",
                    field=models.BigIntegerField(
                        default=-1,
                        help_text="Sequence number of the last turn that was processed for searches by meaning."
                        " −1 if no turn was processed.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_weighted_tokens",
                    field=models.FloatField(
                        default=0,
                        help_text="Number of weighted tokens in turns that were already searched for facts and "
                        "observations.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="kept_from_sequence",
                    field=models.BigIntegerField(
                        default=0,
                        help_text="Sequence number of the first turn that is neither archived nor deleted.",
                        verbose_name="first stored turn",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform last received a message. The session is idle from this time on.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_moment_message_idx",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the last turn that belongs to a moment.",
                        null=True,
                        verbose_name="last turn in a moment",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_sequence",
                    field=models.BigIntegerField(
                        default=-1, help_text="Sequence number of the latest turn. −1 if the session has no turns."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="legal_hold",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the session is on legal hold. On legal hold, the session and its "
                        "turns can't be archived or deleted.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="live_from_sequence",
                    field=models.BigIntegerField(
                        default=0,
                        help_text="Sequence number of the first live turn. Models receive live turns word for word.",
                        verbose_name="first live turn",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns, including archived and deleted turns. Partition events "
                        "don't count.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="retraction_count",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="Number of retractions in the session, plus the number of times that a "
                        "retraction was undone. If this number changes while a job runs, the job runs"
                        " again.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="session_id",
                    field=models.CharField(
                        help_text="The application's own id for the session. The id must be unique for the user.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="summarised_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the last turn that a summary covers.",
                        null=True,
                        verbose_name="last summarized turn",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="weighted_tokens",
                    field=models.FloatField(
                        default=0,
                        help_text="Number of tokens in the session. Tokens of assistant, tool and system turns "
                        "count less than tokens of user turns.",
                    ),
                ),
            ],
        ),
    ]
