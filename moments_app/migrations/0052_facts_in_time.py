"""Facts that hold from one time to another, what contradicts them, and corrections: columns that rewrite no table."""

import uuid

import django.contrib.postgres.fields
import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLES = ("moments_app_contradiction", "moments_app_correction", "moments_app_correctedturn")


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0051_index_vectors"),
        ("sessions_app", "0022_speakers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Contradiction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reason", models.CharField(help_text="Why nobody was sure.", max_length=255)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "decision",
                    models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("declined", "Declined")],
                        default="",
                        help_text="Blank: none yet.",
                        max_length=16,
                    ),
                ),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("decided_by", models.CharField(blank=True, default="", max_length=255)),
            ],
        ),
        migrations.CreateModel(
            name="CorrectedTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.BigIntegerField()),
                ("wrong", models.TextField(help_text="The words that were wrong.")),
                ("right", models.TextField(blank=True, help_text="Those in their place; blank: none.")),
            ],
        ),
        migrations.CreateModel(
            name="Correction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("correction_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("corrected", "Corrected"), ("ended", "Ended"), ("withdrawn", "Withdrawn")],
                        max_length=16,
                    ),
                ),
                ("before", models.TextField(help_text="What the fact said.")),
                ("after", models.TextField(blank=True, help_text="What it says now; blank: nothing.")),
                ("valid_until", models.DateTimeField(blank=True, help_text="Of one that was ended.", null=True)),
                (
                    "changes",
                    models.JSONField(
                        default=list,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        help_text="Each row that was changed, and how it was before.",
                    ),
                ),
                ("requested_by", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("undone_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="attribute",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="What has one value at a time: home, work, name, …",
                max_length=64,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="confidence",
            field=models.FloatField(
                blank=True,
                editable=False,
                help_text="How sure who wrote it was, up to 1; blank: they didn't say.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="corrected_at",
            field=models.DateTimeField(
                blank=True, editable=False, help_text="When it was put in the place of one that never held.", null=True
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="end_message_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), blank=True, db_default=[], default=list, editable=False, size=None
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="ended_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When it was said, or decided, that it no longer holds.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="ended_by",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Who decided that; blank: what was said later about the same.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="is_wrong",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="It was corrected: it never held.",
                verbose_name="never held",
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="replaced_by",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="moments_app.memoryatom",
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="subject",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Whose attribute has a value, where it was read as that.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="valid_from",
            field=models.DateTimeField(blank=True, help_text="Since when it holds; blank: nobody said.", null=True),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="valid_until",
            field=models.DateTimeField(blank=True, help_text="Until when it held; blank: it does.", null=True),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="value",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=255),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="worth",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                editable=False,
                help_text="How long what it says will be true and asked for, up to 1.",
            ),
        ),
        migrations.AlterField(
            model_name="memoryatom",
            name="state",
            field=models.CharField(
                choices=[("active", "Active"), ("absorbed", "Absorbed"), ("ended", "Ended"), ("evicted", "Evicted")],
                default="active",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="contradiction",
            name="earlier",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="moments_app.memoryatom"
            ),
        ),
        migrations.AddField(
            model_name="contradiction",
            name="later",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="contradictions", to="moments_app.memoryatom"
            ),
        ),
        migrations.AddField(
            model_name="contradiction",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="contradictions",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddField(
            model_name="correctedturn",
            name="session",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.session"
            ),
        ),
        migrations.AddField(
            model_name="correctedturn",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddField(
            model_name="correction",
            name="fact",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="corrections",
                to="moments_app.memoryatom",
            ),
        ),
        migrations.AddField(
            model_name="correction",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="corrections", to="sessions_app.userprofile"
            ),
        ),
        migrations.AddField(
            model_name="correctedturn",
            name="correction",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="turns",
                to="moments_app.correction",
            ),
        ),
        migrations.AddIndex(
            model_name="contradiction",
            index=models.Index(condition=models.Q(("decision", "")), fields=["id"], name="contradiction_waiting"),
        ),
        migrations.AddConstraint(
            model_name="contradiction",
            constraint=models.UniqueConstraint(fields=("earlier", "later"), name="contradiction_once"),
        ),
        migrations.AddIndex(
            model_name="correctedturn",
            index=models.Index(fields=["user", "session", "sequence"], name="corrected_turn"),
        ),
        *map(protect, TABLES),
        *(let_operators(table, of_person(table)) for table in TABLES),
    ]
