import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0052_without_profile_versions")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterModelOptions(
                    name="loginlimit",
                    options={
                        "verbose_name": "application limit",
                        "verbose_name_plural": "applications that the login may see (all if none is listed)",
                    },
                ),
                migrations.AlterField(
                    model_name="apikey",
                    name="last_used_at",
                    field=models.DateTimeField(
                        blank=True, help_text="When the key was last used, to the minute.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="apikey",
                    name="user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Limits the key to one user. If blank, this is a service key for any user of its "
                        "application.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="block_offsets",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="Position of each block, relative to the first block.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="block_sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="Sequence number of the first turn in each block. Blocks can be read separately.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_count",
                    field=models.PositiveBigIntegerField(
                        help_text="Number of bytes that the turns take up in the file."
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="byte_offset",
                    field=models.BigIntegerField(
                        db_default=0, default=0, help_text="Position of the first byte of the turns in the file."
                    ),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="name",
                    field=models.CharField(help_text="Name of the file in the archive storage.", max_length=255),
                ),
                migrations.AlterField(
                    model_name="archive",
                    name="sha256",
                    field=models.CharField(help_text="SHA-256 hash of the bytes of the turns.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="actor",
                    field=models.CharField(
                        help_text="Who caused the event: key:…, operator:… or job:….", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="event",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Application of an event that isn't about a person. Blank if the event is about a "
                        "person or is site-wide.",
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
                        help_text="When the platform received the message. The retention period starts at this time.",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="created_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="When the message was sent, according to the client.",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="external_id",
                    field=models.CharField(
                        blank=True, help_text="The client's own id for the message.", max_length=255, null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="name",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the speaker, if several people or agents take part.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="retracted_at",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the turn was retracted. It stays in the transcript, but is no longer sent to "
                        "engines or included in contexts.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="said_hash",
                    field=models.BinaryField(
                        help_text="Hash of an archived turn that has an external_id. It is compared with messages "
                        "that a client sends again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns when moments were last built. Only later turns count toward the "
                        "next build.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="built_total_tokens",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of tokens when moments were last built."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="compact_on_request",
                    field=models.BooleanField(
                        blank=True,
                        help_text="Whether to compact the session before its messages are loaded or a context is "
                        "built. If blank, the setting applies.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="counted_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Turns of the session when the person's words were last counted."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="embedded_sequence",
                    field=models.BigIntegerField(
                        default=-1,
                        help_text="Sequence number of the last turn that has a vector or doesn't need one, or −1 if "
                        "there is none.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns that were already searched for facts and observations."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_weighted_tokens",
                    field=models.FloatField(
                        default=0,
                        help_text="Number of weighted tokens in the turns that were already searched for facts and "
                        "observations.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="kept_from_sequence",
                    field=models.BigIntegerField(
                        default=0, help_text="Sequence number of the first turn that is neither archived nor deleted."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_activity_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Time of the latest message, according to the client.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform last received a message. The idle time starts at this time.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_formation_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the last turn that was searched for facts and observations.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_moment_message_idx",
                    field=models.BigIntegerField(
                        blank=True, help_text="Sequence number of the last turn that belongs to a moment.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_sequence",
                    field=models.BigIntegerField(
                        default=-1, help_text="Sequence number of the latest turn, or −1 if there is none."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="legal_hold",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the session's turns are exempt from retention.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="live_from_sequence",
                    field=models.BigIntegerField(default=0, help_text="Sequence number of the first live turn."),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns, not counting boundaries."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="restored_at",
                    field=models.DateTimeField(
                        blank=True, help_text="When archived turns were last restored.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="retraction_count",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="How often turns were retracted, or a retraction was undone. Jobs that started "
                        "before the latest change run again.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="session_id",
                    field=models.CharField(
                        help_text="The application's own id for the session. It is unique per user.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="source",
                    field=models.CharField(
                        default="api",
                        help_text="Where the session comes from, such as api, discord or import.",
                        max_length=64,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="summarised_sequence",
                    field=models.BigIntegerField(
                        blank=True, help_text="Sequence number of the last turn that a summary covers.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="weighted_tokens",
                    field=models.FloatField(
                        default=0, help_text="Number of tokens, weighted by the role of each turn."
                    ),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="is_test",
                    field=models.BooleanField(
                        db_default=models.Value(False),
                        default=False,
                        editable=False,
                        help_text="Whether operators created this person for tests in the playground.",
                        verbose_name="test person",
                    ),
                ),
                migrations.AlterField(
                    model_name="userprofile",
                    name="user_id",
                    field=models.CharField(help_text="The application's own id for the person.", max_length=255),
                ),
            ]
        )
    ]
