"""Shards and prompts of applications; the shards there are belong to the first, the prompts to the site.

No table is rewritten, and none is read while it is locked, but that of prompts.
"""

import django.db.models.deletion
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import Q

STREAMS = """
ALTER TABLE moments_app_memorystream ADD COLUMN application_id bigint DEFAULT 1;
ALTER TABLE moments_app_memorystream ADD CONSTRAINT stream_application
    FOREIGN KEY (application_id) REFERENCES sessions_app_application (id) DEFERRABLE INITIALLY DEFERRED NOT VALID;
"""


def application(**fields: object) -> "models.ForeignKey[models.Model, models.Model]":
    """Return the reference to an application."""
    return models.ForeignKey(
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to="sessions_app.application",
        **fields,
    )


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0041_everybodys_rows"), ("sessions_app", "0018_names_no_longer_unique")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(STREAMS, "ALTER TABLE moments_app_memorystream DROP COLUMN application_id"),
            ],
            state_operations=[
                migrations.AddField(
                    "memorystream",
                    "application",
                    application(
                        db_default=models.Value(1),
                        db_index=False,
                        default=None,
                        help_text="Of a shard. What belongs to a person is of their application, whatever stands here.",
                    ),
                ),
            ],
        ),
        AddConstraintNotValid(
            "memorystream",
            models.CheckConstraint(
                condition=~Q(stream_type="agent") | Q(application__isnull=False), name="shard_has_application"
            ),
        ),
        migrations.AddField(
            "promptresource",
            "application",
            application(help_text="That has this prompt in place of the site's. Blank: the site's."),
        ),
        migrations.AlterField("promptresource", "uri", models.CharField(help_text="rem://prompts/…", max_length=255)),
        migrations.AddConstraint(
            "promptresource",
            models.UniqueConstraint(
                fields=("uri", "application"), name="prompt_unique_in_application", nulls_distinct=False
            ),
        ),
    ]
