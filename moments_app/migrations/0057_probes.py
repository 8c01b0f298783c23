"""Questions that are asked of memory, and what came of them."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLES = ("moments_app_probe", "moments_app_proberesult")


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0056_lines_of_profiles"),
        ("sessions_app", "0022_speakers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Probe",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("probe_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("question", models.TextField(help_text="What the context is for.", max_length=4000)),
                ("question_hash", models.CharField(editable=False, max_length=64)),
                (
                    "expected",
                    models.TextField(
                        help_text="Its words are looked for.", max_length=4000, verbose_name="expected answer"
                    ),
                ),
                (
                    "evidence_sequences",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="Of the turns of that session that say the answer.",
                        size=None,
                    ),
                ),
                (
                    "source_message_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, default=list, editable=False, size=None
                    ),
                ),
                ("created_by", models.CharField(editable=False, max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "session",
                    models.ForeignKey(
                        blank=True,
                        help_text="Where the question is asked. Blank: in the session that the person was in last.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="probes",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "source_session",
                    models.ForeignKey(
                        blank=True,
                        help_text="Where the evidence was said.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="probes",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ProbeResult",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run_id", models.UUIDField(help_text="Of the run, which may have asked many.")),
                (
                    "is_met",
                    models.BooleanField(
                        help_text="Enough of the words, and the evidence where some is named.", verbose_name="met"
                    ),
                ),
                ("words_found", models.PositiveSmallIntegerField(default=0)),
                ("words_count", models.PositiveSmallIntegerField(default=0)),
                (
                    "missing_words",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=255), blank=True, default=list, size=None
                    ),
                ),
                ("evidence_found", models.PositiveSmallIntegerField(default=0)),
                ("evidence_count", models.PositiveSmallIntegerField(default=0)),
                ("tokens", models.PositiveIntegerField(default=0, help_text="Estimated, of the context.")),
                ("refs", models.JSONField(default=dict, help_text="Addresses of the items of the context, by layer.")),
                (
                    "setup",
                    models.JSONField(
                        default=dict, help_text="The prompts' versions in force, and settings that matter."
                    ),
                ),
                ("problem", models.CharField(blank=True, help_text="Why there was no context.", max_length=255)),
                ("requested_by", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "probe",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="results",
                        to="moments_app.probe",
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
                "verbose_name": "probe result",
            },
        ),
        migrations.AddConstraint(
            model_name="probe",
            constraint=models.UniqueConstraint(
                fields=("user", "session", "question_hash"), name="probe_asked_once", nulls_distinct=False
            ),
        ),
        migrations.AddIndex(
            model_name="proberesult",
            index=models.Index(fields=["probe", "-id"], name="probe_result_newest"),
        ),
        migrations.AddIndex(
            model_name="proberesult",
            index=models.Index(fields=["user", "-id"], name="probe_result_user"),
        ),
        migrations.AddConstraint(
            model_name="proberesult",
            constraint=models.UniqueConstraint(fields=("run_id", "probe"), name="probe_result_once_a_run"),
        ),
        *map(protect, TABLES),
        *(let_operators(table, of_person(table)) for table in TABLES),
    ]
