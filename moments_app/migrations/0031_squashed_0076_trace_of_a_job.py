"""Circuits, releases, applications, facts in time, lines of profiles, probes, failures, trials and webhooks."""

import uuid
from pathlib import Path

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.serializers.json
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models
from django.db.models.functions import Coalesce

from sessions_app.at_once import AtOnce

SUBJECT = Coalesce("user_id", -models.F("stream_id"), 0)
KINDS = ("factembedding", "momentembedding", "turnembedding")
REFUSED = {
    "refusal": models.CharField(
        blank=True, db_default="", default="", max_length=255, help_text="What the endpoint said last."
    ),
    "refusals": models.PositiveSmallIntegerField(db_default=0, default=0, help_text="How often it refused the text."),
    "ask_again_at": models.DateTimeField(
        null=True, help_text="When a refused text is sent again; blank: with the next."
    ),
}
STREAMS = """
ALTER TABLE moments_app_memorystream ADD COLUMN application_id bigint DEFAULT 1;
ALTER TABLE moments_app_memorystream ADD CONSTRAINT stream_application
    FOREIGN KEY (application_id) REFERENCES sessions_app_application (id) DEFERRABLE INITIALLY DEFERRED NOT VALID;
"""
# Functions, policies and grants.
SQL = Path(__file__).with_suffix(".sql")

MODELS = [
    migrations.CreateModel(
        name="Circuit",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("engine", models.CharField(max_length=255)),
            (
                "work",
                models.CharField(
                    choices=[("text", "Text"), ("embedding", "Embedding"), ("query", "Query")], max_length=16
                ),
            ),
            (
                "state",
                models.CharField(choices=[("closed", "Closed"), ("open", "Open")], default="closed", max_length=8),
            ),
            (
                "since",
                models.DateTimeField(default=django.utils.timezone.now, help_text="When it was opened or closed."),
            ),
            (
                "holds_all",
                models.BooleanField(default=False, help_text="Whether everybody's jobs are held, or one person's."),
            ),
            ("reason", models.CharField(blank=True, help_text="The kind of the last error.", max_length=32)),
            ("error", models.TextField(blank=True, help_text="The last error.")),
            ("failures", models.PositiveIntegerField(default=0, help_text="In a row, with no answer in between.")),
            (
                "subject",
                models.BigIntegerField(blank=True, help_text="Whom they are about, if about one alone.", null=True),
            ),
            (
                "lone_subject",
                models.BigIntegerField(
                    blank=True, help_text="Whose failures the answers to others have shown to be their own.", null=True
                ),
            ),
            ("failed_job", models.BigIntegerField(blank=True, null=True)),
            ("last_failure_at", models.DateTimeField(blank=True, null=True)),
            ("next_probe_at", models.DateTimeField(default=django.utils.timezone.now)),
            ("probe", models.BigIntegerField(blank=True, help_text="The job that was sent out last.", null=True)),
            ("probe_subject", models.BigIntegerField(blank=True, null=True)),
            ("is_probing", models.BooleanField(default=False, help_text="The probe has not asked yet.")),
            ("closed_by", models.CharField(blank=True, max_length=255)),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("engine", "work"), name="circuit_unique")]},
    ),
    migrations.AddField(
        "job",
        "circuit",
        models.ForeignKey(
            blank=True,
            db_index=False,
            help_text="Held until it closes.",
            null=True,
            on_delete=django.db.models.deletion.SET_NULL,
            related_name="jobs",
            to="moments_app.circuit",
        ),
    ),
    migrations.AddIndex(
        "job",
        models.Index(
            models.F("process"),
            SUBJECT,
            models.F("run_after"),
            condition=models.Q(("circuit", None), ("status", "queued")),
            name="job_in_turn",
        ),
    ),
    migrations.AddIndex(
        "job",
        models.Index(
            models.F("circuit"),
            SUBJECT,
            models.F("id"),
            condition=models.Q(("circuit__isnull", False), ("status", "queued")),
            name="job_held",
        ),
    ),
    migrations.AddIndex(
        "enginecall",
        models.Index(
            condition=models.Q(("error_kind", "invalid_answer")), fields=["prompt_version"], name="engine_call_invalid"
        ),
    ),
    migrations.AddField(
        "job",
        "held_by",
        models.CharField(
            blank=True,
            choices=[
                ("backoff", "a back-off"),
                ("circuit", "a provider that fails"),
                ("budget", "another day: a cap is reached"),
                ("step", "another job"),
            ],
            db_default="",
            default="",
            help_text="What it waited for when it was put back last.",
            max_length=16,
        ),
    ),
    migrations.AddField(
        "job", "held_since", models.DateTimeField(blank=True, help_text="When it was put back first.", null=True)
    ),
    migrations.AddIndex(
        "job",
        models.Index(
            condition=models.Q(("status__in", ["queued", "processing", "failed"])),
            fields=["status", "process"],
            include=("held_by", "circuit", "run_after", "held_since", "queued_at"),
            name="job_unfinished",
        ),
    ),
    *(migrations.AddField(kind, name, field) for kind in KINDS for name, field in REFUSED.items()),
    *(
        migrations.AddIndex(
            kind,
            models.Index(condition=models.Q(vector=None), fields=["model", "ask_again_at"], name=f"{kind}_refused"),
        )
        for kind in KINDS
    ),
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
    migrations.AddConstraint(
        "memoryatom",
        models.CheckConstraint(
            condition=models.Q(("is_candidate", False), ("user__isnull", False), _connector="OR"),
            name="atom_candidate_has_person",
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(fields=["stream", "is_candidate", "state", "atom_type", "formed_at", "id"], name="atom_in_stream"),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(condition=models.Q(("is_candidate", True)), fields=["user", "id"], name="atom_candidates"),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(("is_candidate", True), ("reviewed_at__isnull", True), ("state", "active")),
            fields=["id"],
            name="atom_to_review",
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(
                ("atom_type", "observation"),
                ("is_candidate", False),
                ("is_pinned", False),
                ("shown_in__isnull", True),
                ("state", "active"),
            ),
            fields=["stream"],
            name="atom_new",
        ),
    ),
    migrations.RemoveIndex(model_name="memoryatom", name="atom_stream_order"),
    migrations.RemoveIndex(model_name="memoryatom", name="atom_fresh"),
    migrations.AddConstraint(
        "memoryatom",
        models.UniqueConstraint(
            condition=models.Q(("state", "active")),
            fields=("stream", "user", "content_hash"),
            name="atom_unique_of_person_while_active",
            nulls_distinct=False,
        ),
    ),
    migrations.RemoveConstraint(model_name="memoryatom", name="atom_unique_while_active"),
    migrations.CreateModel(
        name="Release",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("release_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
            ("wording", models.TextField()),
            (
                "rule",
                models.CharField(
                    choices=[("operator", "Operator"), ("alike", "said alike")], default="operator", max_length=16
                ),
            ),
            (
                "actor",
                models.CharField(help_text="Who decided: operator:…, or the rule with its version.", max_length=255),
            ),
            ("note", models.CharField(blank=True, max_length=2000)),
            (
                "signature",
                models.CharField(
                    editable=False,
                    help_text="Of wording, stream and time; of a rule's, of the rule as well.",
                    max_length=255,
                ),
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
                    on_delete=django.db.models.deletion.CASCADE, related_name="releases", to="moments_app.memorystream"
                ),
            ),
            (
                "quorum",
                models.PositiveSmallIntegerField(
                    db_default=0,
                    default=0,
                    help_text="It is withdrawn when fewer people than this remain that it is from. 0: nobody counted.",
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
                    on_delete=django.db.models.deletion.CASCADE, related_name="sources", to="moments_app.release"
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                ),
            ),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("release", "atom"), name="release_source_once")]},
    ),
    migrations.SeparateDatabaseAndState(
        [migrations.RunSQL(STREAMS)],
        [
            migrations.AddField(
                "memorystream",
                "application",
                models.ForeignKey(
                    blank=True,
                    db_default=models.Value(1),
                    db_index=False,
                    default=None,
                    help_text="Of a shard. What belongs to a person is of their application, whatever stands here.",
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="sessions_app.application",
                ),
            )
        ],
    ),
    migrations.RunSQL("ALTER TABLE moments_app_memorystream VALIDATE CONSTRAINT stream_application"),
    migrations.AddConstraint(
        "memorystream",
        models.CheckConstraint(
            condition=models.Q(
                models.Q(("stream_type", "agent"), _negated=True), ("application__isnull", False), _connector="OR"
            ),
            name="shard_has_application",
        ),
    ),
    migrations.AddField(
        "promptresource",
        "application",
        models.ForeignKey(
            blank=True,
            help_text="That has this prompt in place of the site's. Blank: the site's.",
            null=True,
            on_delete=django.db.models.deletion.PROTECT,
            related_name="+",
            to="sessions_app.application",
        ),
    ),
    migrations.AlterField("promptresource", "uri", models.CharField(help_text="rem://prompts/…", max_length=255)),
    migrations.AddConstraint(
        "promptresource",
        models.UniqueConstraint(
            fields=("uri", "application"), name="prompt_unique_in_application", nulls_distinct=False
        ),
    ),
    migrations.AddConstraint(
        "memorystream",
        models.UniqueConstraint(
            condition=models.Q(("user__isnull", False)),
            fields=("user", "agent_id", "stream_type", "session"),
            name="stream_unique_of_person",
            nulls_distinct=False,
        ),
    ),
    migrations.AddConstraint(
        "memorystream",
        models.UniqueConstraint(
            condition=models.Q(("stream_type", "agent")),
            fields=("application", "agent_id", "name"),
            name="shard_unique_in_application",
        ),
    ),
    migrations.RemoveConstraint(model_name="memorystream", name="stream_unique_in_scope"),
    migrations.RemoveIndex(model_name="memorystream", name="stream_shards"),
    migrations.AddField(
        "job",
        "key",
        models.ForeignKey(
            blank=True,
            db_index=False,
            help_text="Whose calls led to it.",
            null=True,
            on_delete=django.db.models.deletion.SET_NULL,
            related_name="+",
            to="sessions_app.apikey",
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "alike",
        models.BigIntegerField(
            blank=True,
            editable=False,
            help_text="Of a candidate: primary key of the first of those that say alike.",
            null=True,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "left_to_operator",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="Why the rule did not release the candidate.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "memorystream",
        "shares_by_rule",
        models.BooleanField(
            db_default=False,
            default=False,
            help_text="Of a shard: what several people said alike reaches the users of their agent without an "
            "operator, where nothing in it is one person's. Of a shard of every agent it holds for all of its "
            "name.",
            verbose_name="shared by rule",
        ),
    ),
    migrations.AddIndex(
        "memoryatom", models.Index(condition=models.Q(("alike__isnull", False)), fields=["alike"], name="atom_alike")
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(("alike__isnull", True), ("is_candidate", True), ("state", "active")),
            fields=["stream", "id"],
            name="atom_to_group",
        ),
    ),
    migrations.AddField(
        "enginecall",
        "dropped_count",
        models.PositiveIntegerField(
            db_default=0, default=0, help_text="Sentences and items that the conversation didn't bear out."
        ),
    ),
    migrations.AddField(
        "enginecall",
        "dropped_reasons",
        models.JSONField(blank=True, db_default={}, default=dict, help_text="Their number by reason."),
    ),
    migrations.AddField(
        "enginecall",
        "kept_count",
        models.PositiveIntegerField(
            db_default=0, default=0, help_text="Sentences and items of the answer that were kept."
        ),
    ),
    migrations.AddIndex(
        "enginecall",
        models.Index(
            condition=models.Q(("kept_count__gt", 0), ("dropped_count__gt", 0), _connector="OR"),
            fields=["prompt_version", "created_at"],
            include=("kept_count", "dropped_count"),
            name="engine_call_judged",
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "written_by",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="Who wrote it directly, key:… or operator:…; blank: an engine, or it is not known.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "retraction",
        "item_ids",
        django.contrib.postgres.fields.ArrayField(
            base_field=models.UUIDField(),
            blank=True,
            help_text="Of the items, where it is about what was written directly; blank: it is about turns.",
            null=True,
            size=None,
        ),
    ),
    migrations.CreateModel(
        name="Correction",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("correction_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
            (
                "kind",
                models.CharField(
                    choices=[("corrected", "Corrected"), ("ended", "Ended"), ("withdrawn", "Withdrawn")], max_length=16
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
            (
                "fact",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="corrections",
                    to="moments_app.memoryatom",
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="corrections",
                    to="sessions_app.userprofile",
                ),
            ),
        ],
    ),
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
            (
                "earlier",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="moments_app.memoryatom"
                ),
            ),
            (
                "later",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="contradictions",
                    to="moments_app.memoryatom",
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="contradictions",
                    to="sessions_app.userprofile",
                ),
            ),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("decision", "")), fields=["id"], name="contradiction_waiting")
            ],
            "constraints": [models.UniqueConstraint(fields=("earlier", "later"), name="contradiction_once")],
        },
    ),
    migrations.CreateModel(
        name="CorrectedTurn",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("sequence", models.BigIntegerField()),
            ("wrong", models.TextField(help_text="The words that were wrong.")),
            ("right", models.TextField(blank=True, help_text="Those in their place; blank: none.")),
            (
                "session",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.session"
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
            (
                "correction",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="turns",
                    to="moments_app.correction",
                ),
            ),
        ],
        options={"indexes": [models.Index(fields=["user", "session", "sequence"], name="corrected_turn")]},
    ),
    migrations.AddField(
        "memoryatom",
        "attribute",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="What has one value at a time: home, work, name, …",
            max_length=64,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "confidence",
        models.FloatField(
            blank=True,
            editable=False,
            help_text="How sure who wrote it was, up to 1; blank: they didn't say.",
            null=True,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "corrected_at",
        models.DateTimeField(
            blank=True, editable=False, help_text="When it was put in the place of one that never held.", null=True
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "end_message_ids",
        django.contrib.postgres.fields.ArrayField(
            base_field=models.BigIntegerField(), blank=True, db_default=[], default=list, editable=False, size=None
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "ended_at",
        models.DateTimeField(
            blank=True, editable=False, help_text="When it was said, or decided, that it no longer holds.", null=True
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "ended_by",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="Who decided that; blank: what was said later about the same.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "is_wrong",
        models.BooleanField(
            db_default=False,
            default=False,
            editable=False,
            help_text="It was corrected: it never held.",
            verbose_name="never held",
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "replaced_by",
        models.ForeignKey(
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
        "memoryatom",
        "subject",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="Whose attribute has a value, where it was read as that.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "valid_from",
        models.DateTimeField(blank=True, help_text="Since when it holds; blank: nobody said.", null=True),
    ),
    migrations.AddField(
        "memoryatom",
        "valid_until",
        models.DateTimeField(blank=True, help_text="Until when it held; blank: it does.", null=True),
    ),
    migrations.AddField(
        "memoryatom", "value", models.CharField(blank=True, db_default="", default="", editable=False, max_length=255)
    ),
    migrations.AddField(
        "memoryatom",
        "worth",
        models.FloatField(
            db_default=0.0,
            default=0.0,
            editable=False,
            help_text="How long what it says will be true and asked for, up to 1.",
        ),
    ),
    migrations.AlterField(
        "memoryatom",
        "state",
        models.CharField(
            choices=[("active", "Active"), ("absorbed", "Absorbed"), ("ended", "Ended"), ("evicted", "Evicted")],
            default="active",
            max_length=16,
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(("attribute", ""), _negated=True),
            fields=["user", "attribute", "subject", "formed_at"],
            name="atom_timeline",
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(condition=models.Q(("state", "ended")), fields=["user", "-formed_at", "-id"], name="atom_ended"),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(("replaced_by__isnull", False)), fields=["replaced_by"], name="atom_replaced_by"
        ),
    ),
    migrations.AddConstraint(
        "memoryatom",
        models.CheckConstraint(
            condition=models.Q(
                models.Q(("state", "ended"), _negated=True),
                models.Q(("ended_at__isnull", False), ("valid_until__isnull", False)),
                _connector="OR",
            ),
            name="atom_ended_says_when",
        ),
    ),
    migrations.CreateModel(
        name="ProfileLine",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("line_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
            ("heading", models.TextField(blank=True)),
            ("text", models.TextField()),
            ("joint", models.TextField(default="\n", help_text="What parts it from the line before.")),
            ("position", models.PositiveIntegerField(default=0, help_text="Its place in the profile.")),
            (
                "source_message_ids",
                django.contrib.postgres.fields.ArrayField(
                    base_field=models.BigIntegerField(),
                    blank=True,
                    default=list,
                    help_text="The turns it was made of; blank: not known.",
                    size=None,
                ),
            ),
            ("engine", models.CharField(blank=True, max_length=255)),
            (
                "actor",
                models.CharField(blank=True, help_text="Who wrote it: key:…, operator:… or job:…", max_length=255),
            ),
            (
                "is_pinned",
                models.BooleanField(default=False, help_text="Engines leave it as it is.", verbose_name="pinned"),
            ),
            ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
            ("ended_by", models.CharField(blank=True, max_length=255)),
            (
                "end_reason",
                models.CharField(
                    blank=True,
                    choices=[
                        ("changed", "changed into another line"),
                        ("ended", "holds no more"),
                        ("by hand", "a person took it out"),
                    ],
                    max_length=16,
                ),
            ),
            (
                "job",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="profile_lines",
                    to="moments_app.job",
                ),
            ),
            (
                "prompt_version",
                models.ForeignKey(
                    blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to="moments_app.promptversion"
                ),
            ),
            (
                "replaced_by",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="replaces",
                    to="moments_app.profileline",
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="profile_lines",
                    to="sessions_app.userprofile",
                ),
            ),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("ended_at", None)), fields=["user", "position", "id"], name="profile_line_now"
                ),
                models.Index(fields=["user", "-ended_at", "-id"], name="profile_line_ended"),
            ]
        },
    ),
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
        options={
            "constraints": [
                models.UniqueConstraint(
                    fields=("user", "session", "question_hash"), name="probe_asked_once", nulls_distinct=False
                )
            ]
        },
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
                models.JSONField(default=dict, help_text="The prompts' versions in force, and settings that matter."),
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
            "indexes": [
                models.Index(fields=["probe", "-id"], name="probe_result_newest"),
                models.Index(fields=["user", "-id"], name="probe_result_user"),
            ],
            "constraints": [models.UniqueConstraint(fields=("run_id", "probe"), name="probe_result_once_a_run")],
        },
    ),
    migrations.AddField(
        "memorystream",
        "extraction_model",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            help_text="Blank: MEMORY_FORMATION__MODEL. Another has to be one of MEMORY_FORMATION__STREAM_MODELS.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "memoryatom",
        "related_users",
        django.contrib.postgres.fields.ArrayField(
            base_field=models.CharField(max_length=255),
            blank=True,
            db_default=[],
            default=list,
            help_text="user_ids of the people it is about, beside its own. To be named lets nobody see it.",
            size=None,
        ),
    ),
    migrations.AddConstraint(
        "memoryatom",
        models.CheckConstraint(
            condition=models.Q(("related_users", []), ("user__isnull", False), _connector="OR"),
            name="atom_shared_names_nobody",
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        django.contrib.postgres.indexes.GinIndex(
            condition=models.Q(("related_users", []), _negated=True), fields=["related_users"], name="atom_related"
        ),
    ),
    migrations.AddField(
        "contextreceipt",
        "after_sequence",
        models.BigIntegerField(
            blank=True, help_text="The session's newest turn when it was served; −1 for none.", null=True
        ),
    ),
    migrations.AddField(
        "contextreceipt",
        "sealed",
        models.BinaryField(blank=True, help_text="The context, see `moments_app.context.kept`.", null=True),
    ),
    migrations.CreateModel(
        name="FailureGroup",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("process", models.CharField(help_text="What failed: a process, or what a query was for.", max_length=32)),
            ("engine", models.CharField(blank=True, max_length=255)),
            ("kind", models.CharField(max_length=32)),
            ("place", models.CharField(blank=True, help_text="Of a defect or a setting.", max_length=255)),
            ("error", models.TextField(blank=True, help_text="The last one.")),
            ("count", models.PositiveIntegerField(default=0)),
            ("first_seen_at", models.DateTimeField(default=django.utils.timezone.now)),
            ("last_seen_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ("muted_at", models.DateTimeField(blank=True, null=True)),
            ("muted_by", models.CharField(blank=True, max_length=255)),
            (
                "application",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="+",
                    to="sessions_app.application",
                ),
            ),
        ],
        options={
            "verbose_name": "failure",
            "constraints": [
                models.UniqueConstraint(
                    fields=("application", "process", "engine", "kind", "place"),
                    name="failure_one_of_each_cause",
                    nulls_distinct=False,
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="FailureHour",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("hour", models.DateTimeField()),
            ("count", models.PositiveIntegerField()),
            (
                "failure",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="hours",
                    to="moments_app.failuregroup",
                ),
            ),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("failure", "hour"), name="failure_hour_unique")]},
    ),
    migrations.CreateModel(
        name="KeptExchange",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("sealed", models.BinaryField()),
            ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            (
                "call",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="exchange", to="moments_app.enginecall"
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                ),
            ),
        ],
    ),
    migrations.AddField(
        "enginecall",
        "failure",
        models.ForeignKey(
            blank=True,
            db_index=False,
            null=True,
            on_delete=django.db.models.deletion.SET_NULL,
            related_name="calls",
            to="moments_app.failuregroup",
        ),
    ),
    migrations.AddField(
        "job",
        "failure",
        models.ForeignKey(
            blank=True,
            db_index=False,
            help_text="By which its last attempt came to nothing.",
            null=True,
            on_delete=django.db.models.deletion.SET_NULL,
            related_name="jobs",
            to="moments_app.failuregroup",
        ),
    ),
    migrations.AddIndex(
        "enginecall",
        models.Index(
            condition=models.Q(("failure__isnull", False)), fields=["failure", "-id"], name="engine_call_failure"
        ),
    ),
    migrations.AddIndex(
        "job",
        models.Index(
            condition=models.Q(("failure__isnull", False)), fields=["failure", "status", "id"], name="job_of_failure"
        ),
    ),
    migrations.AddField(
        "entity",
        "written_by",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            editable=False,
            help_text="Whose key added it, key:…; blank: it is not known.",
            max_length=255,
        ),
    ),
    migrations.AddField(
        "retraction",
        "entity_ids",
        django.contrib.postgres.fields.ArrayField(
            base_field=models.UUIDField(),
            blank=True,
            help_text="Of the tasks, goals and problems among them.",
            null=True,
            size=None,
        ),
    ),
    migrations.AddField(
        "retraction",
        "stream",
        models.ForeignKey(
            blank=True,
            help_text="Whose items, where everybody sees them.",
            null=True,
            on_delete=django.db.models.deletion.CASCADE,
            related_name="retractions",
            to="moments_app.memorystream",
            verbose_name="shard",
        ),
    ),
    migrations.AlterField(
        "retraction",
        "user",
        models.ForeignKey(
            blank=True,
            null=True,
            on_delete=django.db.models.deletion.CASCADE,
            related_name="retractions",
            to="sessions_app.userprofile",
        ),
    ),
    migrations.AlterField(
        "retracteditem",
        "user",
        models.ForeignKey(
            help_text="Of whom the retraction is; blank: of a shard.",
            null=True,
            on_delete=django.db.models.deletion.CASCADE,
            related_name="+",
            to="sessions_app.userprofile",
        ),
    ),
    migrations.AddConstraint(
        "retraction",
        models.CheckConstraint(
            condition=models.Q(("user__isnull", True), ("stream__isnull", True), _connector="XOR"),
            name="retraction_of_person_or_shard",
        ),
    ),
    migrations.AddField(
        "enginecall",
        "is_part",
        models.BooleanField(
            db_default=False,
            default=False,
            help_text="What came of one task of a combined call, for its prompt. Tokens, cost and time are the call's.",
            verbose_name="part of a combined call",
        ),
    ),
    migrations.AddIndex(
        "summary",
        models.Index(
            condition=models.Q(("status", "completed")),
            fields=["user", "-created_at", "-id"],
            name="summary_user_newest",
        ),
    ),
    migrations.AddIndex(
        "memoryatom",
        models.Index(
            condition=models.Q(("ended_at__isnull", False)), fields=["user", "-ended_at", "-id"], name="atom_user_ended"
        ),
    ),
    migrations.CreateModel(
        name="PromptTrial",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("size", models.PositiveIntegerField(help_text="Sessions or streams that were chosen.")),
            ("tried", models.PositiveIntegerField(default=0, help_text="On how many of them it was.")),
            (
                "differing",
                models.PositiveIntegerField(default=0, help_text="On how many of them the two made something else."),
            ),
            ("requested_by", models.CharField(max_length=255)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            (
                "version",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="trials", to="moments_app.promptversion"
                ),
            ),
        ],
    ),
    migrations.CreateModel(
        name="TrialSide",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("calls", models.PositiveIntegerField(default=0)),
            ("failed", models.PositiveIntegerField(default=0, help_text="On how many it came to nothing.")),
            ("milliseconds", models.PositiveBigIntegerField(default=0)),
            ("tokens", models.PositiveBigIntegerField(default=0)),
            ("usd", models.DecimalField(decimal_places=6, default=0, max_digits=12)),
            ("kept", models.PositiveIntegerField(default=0)),
            ("dropped", models.PositiveIntegerField(default=0)),
            ("probes", models.PositiveIntegerField(default=0)),
            ("met", models.PositiveIntegerField(default=0)),
            (
                "trial",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="sides", to="moments_app.prompttrial"
                ),
            ),
            (
                "version",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="moments_app.promptversion"
                ),
            ),
        ],
        options={
            "ordering": ["pk"],
            "constraints": [models.UniqueConstraint(fields=("trial", "version"), name="trial_side_once")],
        },
    ),
    migrations.CreateModel(
        name="WebhookEndpoint",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("name", models.CharField(max_length=64)),
            (
                "url",
                models.CharField(
                    help_text="Each event is posted there.",
                    max_length=2000,
                    validators=[
                        django.core.validators.RegexValidator(
                            "^https?://[^\\s/]+", "It begins with https:// and has no spaces."
                        )
                    ],
                    verbose_name="address",
                ),
            ),
            (
                "events",
                django.contrib.postgres.fields.ArrayField(
                    base_field=models.CharField(
                        choices=[
                            ("moments_built", "moment.made"),
                            ("session_settled", "session.settled"),
                            ("job_failed", "job.failed"),
                            ("circuit_opened", "provider.down"),
                            ("user_erased", "person.erased"),
                        ],
                        max_length=32,
                    ),
                    size=None,
                ),
            ),
            ("sealed_secret", models.BinaryField()),
            (
                "is_active",
                models.BooleanField(default=True, help_text="It is told of what happens.", verbose_name="active"),
            ),
            ("failures", models.PositiveIntegerField(default=0, editable=False, help_text="In a row.")),
            ("waits_until", models.DateTimeField(editable=False, help_text="Nothing is sent before.", null=True)),
            ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            (
                "application",
                models.ForeignKey(
                    default=1,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="sessions_app.application",
                ),
            ),
        ],
        options={"verbose_name": "webhook"},
    ),
    migrations.CreateModel(
        name="WebhookDelivery",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("delivery_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
            ("queued_at", models.DateTimeField(default=django.utils.timezone.now)),
            (
                "due_at",
                models.DateTimeField(
                    default=django.utils.timezone.now, help_text="Blank: it was sent, or given up.", null=True
                ),
            ),
            ("attempts", models.PositiveIntegerField(default=0)),
            ("sent_at", models.DateTimeField(null=True)),
            ("error", models.CharField(blank=True, help_text="Of the last attempt.", max_length=255)),
            (
                "event",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.event"
                ),
            ),
            (
                "endpoint",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="deliveries",
                    to="moments_app.webhookendpoint",
                    verbose_name="to",
                ),
            ),
        ],
        options={
            "verbose_name": "webhook delivery",
            "verbose_name_plural": "webhook deliveries",
            "indexes": [
                models.Index(condition=models.Q(("due_at__isnull", False)), fields=["due_at", "id"], name="webhook_due")
            ],
        },
    ),
    migrations.AddField(
        "job",
        "trace",
        models.CharField(
            blank=True, db_default="", default="", help_text="Of the request that led to it.", max_length=55
        ),
    ),
]


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0031_as_made_today"),
        ("moments_app", "0032_jobs_in_turn"),
        ("moments_app", "0033_circuit"),
        ("moments_app", "0034_jobs_not_held"),
        ("moments_app", "0037_what_waits"),
        ("moments_app", "0038_refused_texts"),
        ("moments_app", "0039_shared_memory"),
        ("moments_app", "0040_candidates"),
        ("moments_app", "0041_everybodys_rows"),
        ("moments_app", "0042_applications"),
        ("moments_app", "0043_shards_in_applications"),
        ("moments_app", "0044_row_security_of_applications"),
        ("moments_app", "0045_limited_operators"),
        ("moments_app", "0046_job_key"),
        ("moments_app", "0047_shared_by_rule"),
        ("moments_app", "0048_said_alike"),
        ("moments_app", "0049_judged_answers"),
        ("moments_app", "0050_items_retracted"),
        ("moments_app", "0051_index_vectors"),
        ("moments_app", "0052_facts_in_time"),
        ("moments_app", "0053_facts_in_time_indexed"),
        ("moments_app", "0054_facts_of_people"),
        ("moments_app", "0055_profile_lines"),
        ("moments_app", "0056_lines_of_profiles"),
        ("moments_app", "0057_probes"),
        ("moments_app", "0058_extraction_model"),
        ("moments_app", "0059_related_users"),
        ("moments_app", "0060_words_without_places"),
        ("moments_app", "0061_kept_contexts"),
        ("moments_app", "0062_failures"),
        ("moments_app", "0063_failures_found"),
        ("moments_app", "0065_retract_what_is_written"),
        ("moments_app", "0067_parts_of_calls"),
        ("moments_app", "0069_days_of_a_person"),
        ("moments_app", "0070_prompt_trials"),
        ("moments_app", "0071_webhooks"),
        ("moments_app", "0072_searches_of_former_times"),
        ("moments_app", "0074_cheaper_policies"),
        ("moments_app", "0076_trace_of_a_job"),
    ]

    dependencies = [
        ("moments_app", "0015_squashed_0030_own_text_before"),
        ("sessions_app", "0015_squashed_0037_revoked_assistants"),
        ("django_q", "__first__"),
    ]

    operations = [AtOnce(MODELS), migrations.RunSQL(SQL.read_text())]
