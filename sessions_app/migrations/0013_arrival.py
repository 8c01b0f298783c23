"""When messages came in, beside when they were said; and what an archived turn leaves behind.

Rows that are there came in now: their keep-by date counts from here. No table is rewritten, no row read.
"""

import django.utils.timezone
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0012_unindexed_messages")]

    operations = [
        migrations.AddField(
            model_name="message",
            name="arrived_at",
            field=models.DateTimeField(
                db_default=Now(),
                default=django.utils.timezone.now,
                help_text="When the platform got it: the keep-by date counts from here.",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="last_arrived_at",
            field=models.DateTimeField(
                db_default=Now(),
                default=django.utils.timezone.now,
                help_text="When the platform last got a message, whenever that was said: it is quiet from here on.",
            ),
        ),
        migrations.AddField(
            model_name="archive",
            name="block_sequences",
            field=ArrayField(
                models.BigIntegerField(),
                default=list,
                help_text="First turn of each part of the file that is read by itself.",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="archive",
            name="block_offsets",
            field=ArrayField(
                models.BigIntegerField(), default=list, help_text="Where in the file each begins.", size=None
            ),
        ),
        migrations.AlterField(
            model_name="message",
            name="kind",
            field=models.CharField(
                choices=[("turn", "Turn"), ("partition", "Partition"), ("archived", "Archived")],
                default="turn",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="message",
            name="created_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now, help_text="When it was said, as the client tells."
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="last_activity_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now, help_text="When something was last said in it."
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="kept_from_sequence",
            field=models.BigIntegerField(
                default=0, help_text="First turn that is still in the transcript, neither archived nor deleted."
            ),
        ),
        migrations.RemoveConstraint(model_name="message", name="message_partition_is_no_speech"),
        AddConstraintNotValid(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind", "partition"), _negated=True) | models.Q(("role__in", ["tool", "system"])),
                name="message_boundary_is_no_speech",
            ),
        ),
    ]
