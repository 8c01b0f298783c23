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
                ('question', models.TextField(help_text='What the context is for.', max_length=4000)),
                ('question_hash', models.CharField(editable=False, max_length=64)),
                ('expected', models.TextField(help_text='Its words are looked for.', max_length=4000, verbose_name='expected answer')),
                ('evidence_sequences', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, help_text='Of the turns of that session that say the answer.', size=None)),
                ('source_message_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, editable=False, size=None)),
                ('created_by', models.CharField(editable=False, max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('session', models.ForeignKey(blank=True, help_text='Where the question is asked. Blank: in the session that the person was in last.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='probes', to='sessions_app.session')),
                ('source_session', models.ForeignKey(blank=True, help_text='Where the evidence was said.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session')),
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
                ('run_id', models.UUIDField(help_text='Of the run, which may have asked many.')),
                ('is_met', models.BooleanField(help_text='Enough of the words, and the evidence where some is named.', verbose_name='met')),
                ('words_found', models.PositiveSmallIntegerField(default=0)),
                ('words_count', models.PositiveSmallIntegerField(default=0)),
                ('missing_words', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=255), blank=True, default=list, size=None)),
                ('evidence_found', models.PositiveSmallIntegerField(default=0)),
                ('evidence_count', models.PositiveSmallIntegerField(default=0)),
                ('tokens', models.PositiveIntegerField(default=0, help_text='Estimated, of the context.')),
                ('refs', models.JSONField(default=dict, help_text='Addresses of the items of the context, by layer.')),
                ('setup', models.JSONField(default=dict, help_text="The prompts' versions in force, and settings that matter.")),
                ('problem', models.CharField(blank=True, help_text='Why there was no context.', max_length=255)),
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
                ('size', models.PositiveIntegerField(help_text='Sessions or streams that were chosen.')),
                ('tried', models.PositiveIntegerField(default=0, help_text='On how many of them it was.')),
                ('differing', models.PositiveIntegerField(default=0, help_text='On how many of them the two made something else.')),
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
                ('failed', models.PositiveIntegerField(default=0, help_text='On how many it came to nothing.')),
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
