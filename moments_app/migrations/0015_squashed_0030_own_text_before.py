"""Retraction, words in their language, moments in time, lines of streams, and what memory itself served."""

import uuid

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import moments_app.models.retraction
import sessions_app.models.searched
from sessions_app.migrations._row_security import search_words
from sessions_app.migrations._word_search import recall_anew, words_index, write_search_vector
from sessions_app.row_security import protect

ATOMS_SCOPE = "COALESCE('u' || user_id, 's' || stream_id)"
MOMENTS_SCOPE = "'u' || user_id"
FACTS = {"scope": ATOMS_SCOPE, "condition": "state = 'active' AND atom_type = 'fact'"}
FOUND = "state <> 'evicted'"
FOUND_INDEX = words_index("moments_app_memoryatom", scope=ATOMS_SCOPE, condition=FOUND).replace(
    "moments_app_memoryatom_words", "moments_app_memoryatom_found"
)
UNINDEXED = models.Q(("search_version__lt", 1))
VERSION = models.SmallIntegerField(db_default=0, default=1, editable=False)


def words() -> models.Field:
    return sessions_app.models.searched.WordsField(editable=False, null=True)


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0015_retraction"),
        ("moments_app", "0016_job_ended"),
        ("moments_app", "0017_recall_plan"),
        ("moments_app", "0018_moment_latest"),
        ("moments_app", "0019_operation"),
        ("moments_app", "0020_prompt_previous_version"),
        ("moments_app", "0021_operators_filters"),
        ("moments_app", "0022_words_of_the_application"),
        ("moments_app", "0023_unindexed_memory"),
        ("moments_app", "0024_moments_in_time"),
        ("moments_app", "0025_chain_in_time"),
        ("moments_app", "0027_stream_lines"),
        ("moments_app", "0028_observations_found"),
        ("moments_app", "0029_own_text"),
        ("moments_app", "0030_own_text_before"),
    ]

    dependencies = [
        ("moments_app", "0002_squashed_0014_source_user"),
        ("sessions_app", "0007_squashed_0014_archived_turns"),
    ]

    operations = [
        migrations.CreateModel(
            name="Retraction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("retraction_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "sequences",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        help_text="Of the turns; blank: all the session had.",
                        null=True,
                        size=None,
                    ),
                ),
                ("reason", models.TextField()),
                ("requested_by", models.CharField(max_length=255)),
                (
                    "result",
                    models.JSONField(
                        default=dict, help_text="How many turns, and how much was withdrawn, of each kind."
                    ),
                ),
                (
                    "waiting",
                    models.JSONField(
                        default=dict, help_text="What earlier ones still had to be made anew, by process."
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, help_text="Also when its turns say they were retracted."
                    ),
                ),
                ("undone_at", models.DateTimeField(blank=True, null=True)),
                (
                    "session",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="retractions",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="retractions",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RetractedItem",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(help_text="Label of its table.", max_length=64)),
                ("object_pk", models.BigIntegerField()),
                (
                    "is_rewritten",
                    models.BooleanField(default=False, help_text="The row stayed, without what was withdrawn."),
                ),
                ("data", models.JSONField(encoder=moments_app.models.retraction.ExactEncoder)),
                (
                    "user",
                    models.ForeignKey(
                        help_text="Whose turns it is of.",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "retraction",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="items", to="moments_app.retraction"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("retraction", "model", "object_pk"), name="retracted_item_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="OwnText",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.BigIntegerField()),
                (
                    "places",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Of the lines, from 0; blank: the turn has nothing else.",
                        null=True,
                        size=None,
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="own_texts",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "sequence"), name="own_text_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("sequence__gte", 0)), name="own_text_sequence_from_zero"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ServedLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.BigIntegerField(help_text="Of its words; see `served_text`.")),
                ("is_quote", models.BooleanField(help_text="It was served only as what somebody said, word for word.")),
                (
                    "served_on",
                    models.DateField(
                        db_index=True, default=django.utils.timezone.localdate, help_text="Last, to the month."
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
                "constraints": [models.UniqueConstraint(fields=("user", "hash"), name="served_line_unique")],
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status__in", ["completed", "skipped"])), fields=["finished_at"], name="job_ended"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["process", "-id"], name="job_process_newest"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True, fields=["created_at"], name="moment_created"
            ),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=models.Index(fields=["category", "-id"], name="moment_category_newest"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=models.Index(fields=["starts_at"], name="moment_starts_at"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=models.Index(fields=["key"], name="moment_key_prefix", opclasses=["varchar_pattern_ops"]),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=django.contrib.postgres.indexes.GinIndex(fields=["emotion_tags"], name="moment_emotions"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=models.Index(fields=["user", "-ends_at", "-first_sequence", "-id"], name="moment_user_in_time"),
        ),
        migrations.RemoveIndex(
            model_name="moment",
            name="moment_user_newest",
        ),
        migrations.AddField(
            model_name="moment",
            name="journey",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="The person's way up to here, as it was told when the build was made that this moment ends.",
            ),
        ),
        migrations.AddIndex(
            model_name="enginecall",
            index=models.Index(
                condition=models.Q(("ok", False)), fields=["-created_at", "-id"], name="engine_call_failed"
            ),
        ),
        migrations.AddField(
            model_name="promptresource",
            name="active_since",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="promptresource",
            name="previous_version",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="In force before the active one.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="moments_app.promptversion",
            ),
        ),
        migrations.AddIndex(
            model_name="summary",
            index=models.Index(condition=models.Q(("status", "failed")), fields=["-id"], name="summary_failed"),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="shown_in",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The first consolidation that was given it, whether its text carries it or not.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="shown",
                to="moments_app.streamversion",
            ),
        ),
        migrations.AddIndex(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(("shown_in__isnull", False)), fields=["shown_in"], name="atom_shown_in"
            ),
        ),
        migrations.AddIndex(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(
                    ("atom_type", "observation"), ("is_pinned", False), ("shown_in__isnull", True), ("state", "active")
                ),
                fields=["stream"],
                name="atom_fresh",
            ),
        ),
        migrations.AddIndex(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(("is_pinned", True), ("state", "active")), fields=["stream"], name="atom_pinned"
            ),
        ),
        migrations.AddField(
            model_name="streamversion",
            name="lines",
            field=models.JSONField(
                editable=False,
                help_text="For each line after: primary keys of the observations it carries; null: it was written by "
                "hand. Blank: it was not recorded yet.",
                null=True,
            ),
        ),
        # A session that is deleted by a request lets go of its retractions.
        protect("moments_app_retraction", privileges="SELECT, UPDATE"),
        protect("moments_app_retracteditem", privileges="SELECT"),
        # What requests find and note; lines are written behind them, by the tables' owner.
        protect("moments_app_servedline", privileges="SELECT"),
        protect("moments_app_owntext"),
        migrations.SeparateDatabaseAndState(
            [
                write_search_vector(
                    "moments_app_memoryatom", ["content"], words_index("moments_app_memoryatom", **FACTS)
                ),
                write_search_vector(
                    "moments_app_moment",
                    ["name", "summary", "detail"],
                    words_index("moments_app_moment", scope=MOMENTS_SCOPE),
                    "CREATE INDEX moment_search ON moments_app_moment USING gin (search_vector)",
                ),
                write_search_vector(
                    "moments_app_entity",
                    ["title", "body"],
                    "CREATE INDEX entity_search ON moments_app_entity USING gin (search_vector)",
                ),
            ],
            [
                migrations.AddField("memoryatom", "search_vector", words()),
                migrations.AddField("memoryatom", "search_version", VERSION.clone()),
                migrations.AlterField("moment", "search_vector", words()),
                migrations.AddField("moment", "search_version", VERSION.clone()),
                migrations.AlterField("entity", "search_vector", words()),
                migrations.AddField("entity", "search_version", VERSION.clone()),
            ],
        ),
        migrations.AddIndex(
            "memoryatom", models.Index(condition=UNINDEXED, fields=["user", "id"], name="atom_unindexed")
        ),
        migrations.AddIndex(
            "moment", models.Index(condition=UNINDEXED, fields=["user", "id"], name="moment_unindexed")
        ),
        migrations.AddIndex(
            "entity", models.Index(condition=UNINDEXED, fields=["user", "id"], name="entity_unindexed")
        ),
        migrations.RunSQL("DROP INDEX moments_app_memoryatom_words", words_index("moments_app_memoryatom", **FACTS)),
        migrations.RunSQL(FOUND_INDEX, "DROP INDEX moments_app_memoryatom_found"),
        recall_anew(
            "moments_app_memoryatom", scope=ATOMS_SCOPE, time="formed_at", condition=FOUND, before=FACTS["condition"]
        ),
        recall_anew("moments_app_moment", scope=MOMENTS_SCOPE, time="ends_at", condition="true", before="true"),
        search_words("moments_app_entity"),
    ]
