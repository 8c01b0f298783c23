"""Take probes and trials of prompts over from `moments_app`: its tables, content types and permissions."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from memory_extras.lab.migrations._unless_there import CreateModelUnlessThere, unless_policy
from sessions_app.limited_operators import let_operators, of_person, seen
from sessions_app.row_security import protect

PROBE, RESULT = "moments_app_probe", "moments_app_proberesult"
TRIAL, SIDE = "moments_app_prompttrial", "moments_app_trialside"
# Permissions refer to content types, so groups and logins keep what they were granted.
CONTENT_TYPES = """
    UPDATE django_content_type moved SET app_label = 'lab'
    WHERE app_label = 'moments_app' AND model IN ('probe', 'proberesult', 'prompttrial', 'trialside')
        AND NOT EXISTS (
            SELECT FROM django_content_type there WHERE there.app_label = 'lab' AND there.model = moved.model
        )
"""
# Rows that retractions withdrew, by the label of their model. Nothing could restore them after the extra is dropped.
WITHDRAWN = """
    UPDATE moments_app_retracteditem SET model = replace(model, 'moments_app.', 'lab.')
    WHERE model IN ('moments_app.probe', 'moments_app.proberesult')
"""
WHEN_DROPPED = """
    DELETE FROM moments_app_retracteditem WHERE model IN ('lab.probe', 'lab.proberesult');
    UPDATE moments_app_job SET status = 'skipped', finished_at = now()
    WHERE process = 'run_probes' AND status IN ('queued', 'processing')
"""


class Migration(migrations.Migration):
    replaces = [
        ("lab", "0001_initial"),
        ("lab", "0002_help_texts"),
        ("lab", "0003_help_texts"),
        ("lab", "0004_help_texts"),
        ("lab", "0005_help_texts"),
        ("lab", "0006_help_texts"),
    ]

    initial = True

    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("moments_app", "0088_without_probes"),
    ]

    operations = [
        CreateModelUnlessThere(
            name='Probe',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('probe_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('question', models.TextField(max_length=4000)),
                ('question_hash', models.CharField(editable=False, max_length=64)),
                ('expected', models.TextField(help_text='The answer that the context should contain. A run searches the context for the words of the answer.', max_length=4000, verbose_name='expected answer')),
                ('evidence_sequences', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, help_text='Sequence numbers of the turns that contain the answer.', size=None)),
                ('source_message_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, editable=False, size=None)),
                ('created_by', models.CharField(editable=False, max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('session', models.ForeignKey(blank=True, help_text="The session in which the question is asked. If blank, the question is asked in the person's latest session.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name='probes', to='sessions_app.session')),
                ('source_session', models.ForeignKey(blank=True, help_text='The session whose turns contain the answer.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='probes', to='sessions_app.userprofile')),
            ],
            options={
                'db_table': 'moments_app_probe',
'constraints': [models.UniqueConstraint(fields=('user', 'session', 'question_hash'), name='probe_asked_once', nulls_distinct=False)],
            },
        ),
        CreateModelUnlessThere(
            name='ProbeResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run_id', models.UUIDField(help_text='Id of the run. All results of a run have the same id.')),
                ('is_met', models.BooleanField(help_text="Whether the context contained at least half of the answer's words. If the probe names turns as evidence, the context must also contain one of these turns.", verbose_name='met')),
                ('words_found', models.PositiveSmallIntegerField(default=0)),
                ('words_count', models.PositiveSmallIntegerField(default=0)),
                ('missing_words', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=255), blank=True, default=list, size=None)),
                ('evidence_found', models.PositiveSmallIntegerField(default=0)),
                ('evidence_count', models.PositiveSmallIntegerField(default=0)),
                ('tokens', models.PositiveIntegerField(default=0, help_text='Estimated number of tokens in the context.')),
                ('refs', models.JSONField(default=dict, help_text='Addresses of the items in the context, grouped by layer.')),
                ('setup', models.JSONField(default=dict, help_text='The prompt versions and settings with which the context was built.')),
                ('problem', models.CharField(blank=True, help_text='Why no context could be built. Blank if a context was built.', max_length=255)),
                ('requested_by', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('probe', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='results', to='lab.probe')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.userprofile')),
            ],
            options={
                'verbose_name': 'probe result',
                'db_table': 'moments_app_proberesult',
'indexes': [models.Index(fields=['probe', '-id'], name='probe_result_newest'), models.Index(fields=['user', '-id'], name='probe_result_user')],
'constraints': [models.UniqueConstraint(fields=('run_id', 'probe'), name='probe_result_once_a_run')],
            },
        ),
        CreateModelUnlessThere(
            name='PromptTrial',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('size', models.PositiveIntegerField(help_text='Number of sessions or streams in the sample.')),
                ('tried', models.PositiveIntegerField(default=0, help_text='Number of sessions or streams on which the version was tried.')),
                ('differing', models.PositiveIntegerField(default=0, help_text='Number of sessions or streams for which the two versions had different results.')),
                ('requested_by', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='trials', to='moments_app.promptversion')),
            ],
            options={
                'db_table': 'moments_app_prompttrial',
            },
        ),
        CreateModelUnlessThere(
            name='TrialSide',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('calls', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0, help_text='Number of sessions or streams for which the version failed.')),
                ('milliseconds', models.PositiveBigIntegerField(default=0)),
                ('tokens', models.PositiveBigIntegerField(default=0)),
                ('usd', models.DecimalField(decimal_places=6, default=0, max_digits=12)),
                ('kept', models.PositiveIntegerField(default=0)),
                ('dropped', models.PositiveIntegerField(default=0)),
                ('probes', models.PositiveIntegerField(default=0)),
                ('met', models.PositiveIntegerField(default=0)),
                ('trial', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sides', to='lab.prompttrial')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='moments_app.promptversion')),
            ],
            options={
                'db_table': 'moments_app_trialside',
'constraints': [models.UniqueConstraint(fields=('trial', 'version'), name='trial_side_once')],
                'ordering': ['pk'],
            },
        ),
        *(unless_policy(table, "acting_user", protect(table)) for table in (PROBE, RESULT)),
        *(unless_policy(table, "operators", let_operators(table, of_person(table))) for table in (PROBE, RESULT)),
        unless_policy(TRIAL, "operators", let_operators(TRIAL, seen(TRIAL, "moments_app_promptversion", "version_id"))),
        unless_policy(SIDE, "operators", let_operators(SIDE, seen(SIDE, TRIAL, "trial_id"))),
        migrations.RunSQL(CONTENT_TYPES, migrations.RunSQL.noop),
        migrations.RunSQL(WITHDRAWN, WHEN_DROPPED),
    ]
