"""Applications, keys, people, and their sessions and messages, with what requests and limited operators see of them."""

from pathlib import Path

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.utils.timezone
import sessions_app.models.searched
import sessions_app.models.user_profile
from django.conf import settings
from django.db import migrations, models

from sessions_app.at_once import AtOnce
from sessions_app.database.resumable_migrations import RunDeferredSQL
from sessions_app.migrations._word_search import recall, then, words_index, words_written

SQL = Path(__file__).with_suffix(".sql")  # roles, functions, policies and grants
SCOPE = "'u' || user_id"
FOUND = "kind <> 'partition' AND role <> 'system'"


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0001_initial"),
        ("sessions_app", "0001_squashed_0006_lifecycle"),
        ("sessions_app", "0002_row_security"),
        ("sessions_app", "0003_formation"),
        ("sessions_app", "0004_search"),
        ("sessions_app", "0005_embeddings"),
        ("sessions_app", "0006_lifecycle"),
        ("sessions_app", "0007_digests"),
        ("sessions_app", "0007_squashed_0014_archived_turns"),
        ("sessions_app", "0008_retraction"),
        ("sessions_app", "0009_recall_plan"),
        ("sessions_app", "0010_created_and_event_type"),
        ("sessions_app", "0011_words_of_the_application"),
        ("sessions_app", "0012_unindexed_messages"),
        ("sessions_app", "0013_arrival"),
        ("sessions_app", "0014_archived_turns"),
        ("sessions_app", "0015_as_made_today"),
        ("sessions_app", "0015_squashed_0037_revoked_assistants"),
        ("sessions_app", "0016_applications"),
        ("sessions_app", "0017_names_in_applications"),
        ("sessions_app", "0018_names_no_longer_unique"),
        ("sessions_app", "0019_reading"),
        ("sessions_app", "0020_limited_operators"),
        ("sessions_app", "0021_daily_limits"),
        ("sessions_app", "0022_speakers"),
        ("sessions_app", "0023_database_roles"),
        ("sessions_app", "0025_words_without_places"),
        ("sessions_app", "0027_words_of_people"),
        ("sessions_app", "0030_test_people"),
        ("sessions_app", "0033_turns_by_arrival"),
        ("sessions_app", "0036_oauth"),
        ("sessions_app", "0037_revoked_assistants"),
        ("sessions_app", "0038_settings_sent_on"),
        ("sessions_app", "0039_archives_together"),
        ("sessions_app", "0040_said_hash"),
        ("sessions_app", "0042_functions_on_turns"),
    ]

    initial = True

    dependencies = [
        ("moments_app", "0001_squashed_moment_initial"),
        ("auth", "__first__"),
        ("admin", "__first__"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        AtOnce(
            [
                migrations.CreateModel(
                    name='ApiKey',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('name', models.CharField(max_length=255)),
                        ('prefix', models.CharField(max_length=16, unique=True)),
                        ('secret_hash', models.CharField(max_length=64)),
                        ('scope', models.CharField(choices=[('read', 'Read'), ('write', 'Write'), ('admin', 'Admin')], default='write', max_length=8)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('expires_at', models.DateTimeField(blank=True, null=True)),
                        ('revoked_at', models.DateTimeField(blank=True, null=True)),
                        ('last_used_at', models.DateTimeField(blank=True, help_text='When the key was last used. Updated at most once a minute.', null=True)),
                        ('user', models.ForeignKey(blank=True, help_text='The only user that the key gives access to. Blank for a service key, which gives access to all users of the application.', null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.userprofile')),
                        ('application', models.ForeignKey(db_default=models.Value(1), on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.application')),
                    ],
                    options={
                        'verbose_name': 'API key',
                        'constraints': [models.CheckConstraint(condition=models.Q(('scope__in', ['read', 'write', 'admin'])), name='api_key_scope_known')],
                    },
                ),
                migrations.CreateModel(
                    name='Application',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('name', models.CharField(help_text='The name can contain lower-case letters, digits and hyphens.', max_length=64, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$', 'Use lower-case letters, digits and hyphens.')])),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                    ],
                    options={
                        'ordering': ['name'],
                        'constraints': [models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')), name='application_name_is_slug')],
                    },
                ),
                migrations.CreateModel(
                    name='Archive',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('month', models.DateField(help_text='First day of the month in which the turns were sent (UTC).')),
                        ('name', models.CharField(help_text='Name of the file in the archive storage.', max_length=255)),
                        ('first_sequence', models.BigIntegerField()),
                        ('last_sequence', models.BigIntegerField()),
                        ('turn_count', models.PositiveBigIntegerField()),
                        ('byte_count', models.PositiveBigIntegerField(help_text='Size of the turns in the file, in bytes.')),
                        ('sha256', models.CharField(help_text='SHA-256 hash of the turns as stored in the file.', max_length=64)),
                        ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='archives', to='sessions_app.session')),
                        ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='archives', to='sessions_app.userprofile')),
                        ('block_sequences', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Sequence number of the first turn in each block. A block is a part of the file that can be read separately.', size=None)),
                        ('block_offsets', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Byte position of each block, counted from the start of the first block.', size=None)),
                        ('byte_offset', models.BigIntegerField(db_default=0, default=0, help_text='Byte position at which the turns start in the file.')),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('session', 'month'), name='archive_one_a_month')],
                    },
                ),
                migrations.CreateModel(
                    name='DailyLimit',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('key', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.apikey')),
                        ('user', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.userprofile', verbose_name='person')),
                        ('application', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.application')),
                        ('requests', models.PositiveBigIntegerField(blank=True, null=True)),
                        ('stored_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                        ('model_calls', models.PositiveBigIntegerField(blank=True, null=True)),
                        ('usd', models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, validators=[django.core.validators.MinValueValidator(0)], verbose_name='USD')),
                    ],
                    options={
                        'constraints': [
                            models.CheckConstraint(condition=models.Q(models.Q(('application__isnull', True), ('key__isnull', False), ('user__isnull', True)), models.Q(('application__isnull', True), ('key__isnull', True), ('user__isnull', False)), models.Q(('application__isnull', False), ('key__isnull', True), ('user__isnull', True)), _connector='OR'), name='daily_limit_of_one'),
                            models.UniqueConstraint(fields=('key',), name='daily_limit_of_key'),
                            models.UniqueConstraint(fields=('user',), name='daily_limit_of_person'),
                            models.UniqueConstraint(fields=('application',), name='daily_limit_of_application'),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name='DailyUsage',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('key', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.apikey')),
                        ('user', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.userprofile', verbose_name='person')),
                        ('application', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.application')),
                        ('day', models.DateField(help_text='Day in UTC.')),
                        ('requests', models.BigIntegerField(default=0)),
                        ('stored_bytes', models.BigIntegerField(default=0)),
                        ('model_calls', models.BigIntegerField(default=0)),
                        ('usd', models.DecimalField(decimal_places=6, default=0, max_digits=16)),
                    ],
                    options={
                        'indexes': [
                            models.Index(condition=models.Q(('key__isnull', False)), fields=['key', 'day'], name='daily_usage_of_key'),
                            models.Index(condition=models.Q(('user__isnull', False)), fields=['user', 'day'], name='daily_usage_of_person'),
                            models.Index(condition=models.Q(('application__isnull', False)), fields=['application', 'day'], name='daily_usage_of_application'),
                        ],
                        'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('application__isnull', True), ('key__isnull', False), ('user__isnull', True)), models.Q(('application__isnull', True), ('key__isnull', True), ('user__isnull', False)), models.Q(('application__isnull', False), ('key__isnull', True), ('user__isnull', True)), _connector='OR'), name='daily_usage_of_one')],
                    },
                ),
                migrations.CreateModel(
                    name='Event',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('type', models.CharField(max_length=64)),
                        ('actor', models.CharField(help_text='What caused the event, such as an API key (key:…), an operator (operator:…) or a job (job:…).', max_length=255)),
                        ('user_pk', models.BigIntegerField(blank=True, null=True)),
                        ('session_pk', models.BigIntegerField(blank=True, null=True)),
                        ('payload', models.JSONField(default=dict)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('application', models.ForeignKey(blank=True, db_index=False, help_text='The application that the event belongs to. Blank if the event is about a person, or is site-wide.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.application')),
                    ],
                    options={
                        'indexes': [
                            models.Index(fields=['-created_at', '-id'], name='event_newest'),
                            models.Index(fields=['user_pk', '-id'], name='event_user'),
                            models.Index(fields=['type', '-created_at', '-id'], name='event_type_newest'),
                            models.Index(condition=models.Q(('type__in', ('user_read', 'user_exported'))), fields=['user_pk', '-created_at', '-id'], name='event_reading'),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name='LoginLimit',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('application', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.application')),
                        ('login', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='limits', to=settings.AUTH_USER_MODEL)),
                    ],
                    options={
                        'verbose_name': 'application limit',
                        'verbose_name_plural': 'applications that the login may see (all if none is listed)',
                        'constraints': [models.UniqueConstraint(fields=('login', 'application'), name='login_limit_once')],
                    },
                ),
                migrations.CreateModel(
                    name='Message',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('sequence', models.BigIntegerField()),
                        ('kind', models.CharField(choices=[('turn', 'Turn'), ('partition', 'Partition'), ('archived', 'Archived')], default='turn', max_length=16)),
                        ('role', models.CharField(choices=[('user', 'User'), ('assistant', 'Assistant'), ('tool', 'Tool'), ('system', 'System')], max_length=16)),
                        ('tool_name', models.CharField(blank=True, max_length=255)),
                        ('content', models.TextField(blank=True)),
                        ('payload', models.JSONField(blank=True, help_text='Structured content, such as tool calls and tool results.', null=True)),
                        ('tokens', models.PositiveIntegerField(default=0, help_text='Estimated number of tokens.')),
                        ('external_id', models.CharField(blank=True, help_text="The client's own id for the message. Blank if the client gave none.", max_length=255, null=True)),
                        ('created_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When the message was sent, according to the client.')),
                        ('metadata', models.JSONField(blank=True, default=dict)),
                        ('moment', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='messages', to='moments_app.moment')),
                        ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='sessions_app.session')),
                        ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='sessions_app.userprofile')),
                        ('retracted_at', models.DateTimeField(blank=True, help_text='When the turn was retracted. A retracted turn stays in the transcript, but is no longer sent to engines or included in contexts.', null=True)),
                        ('search_vector', sessions_app.models.searched.WordsField(editable=False, null=True)),
                        ('arrived_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), default=django.utils.timezone.now, help_text='When the platform received the message. The retention period starts at this time.')),
                        ('search_version', models.SmallIntegerField(db_default=0, default=1, editable=False)),
                        ('name', models.CharField(blank=True, db_default='', default='', help_text='Name of the speaker in a session with several people or agents.', max_length=255)),
                        ('said_hash', models.BinaryField(help_text='Hash of the content of an archived turn that has an external_id. The platform uses the hash to recognize a message that a client sends again.', null=True)),
                    ],
                    options={
                        'indexes': [
                            models.Index(condition=models.Q(('kind', 'partition')), fields=['session', 'user', 'sequence', 'id'], name='message_partitions'),
                            models.Index(condition=models.Q(('moment__isnull', False)), fields=['moment'], name='message_moment'),
                            models.Index(fields=['user', '-created_at', '-id'], name='message_user_newest'),
                            models.Index(condition=models.Q(('kind', 'archived')), fields=['session', 'user', 'sequence'], name='message_archived'),
                            models.Index(condition=models.Q(('search_version__lt', 1)), fields=['user', 'id'], name='message_unindexed'),
                            django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['arrived_at'], name='message_arrived'),
                        ],
                        'constraints': [
                            models.UniqueConstraint(condition=models.Q(('kind', 'turn')), fields=('session', 'user', 'sequence'), name='message_turn_sequence_unique'),
                            models.UniqueConstraint(fields=('session', 'external_id'), name='message_external_id_unique'),
                            models.CheckConstraint(condition=models.Q(('sequence__gte', 0)), name='message_sequence_from_zero'),
                            models.CheckConstraint(condition=models.Q(models.Q(('kind', 'partition'), _negated=True), ('role__in', ['tool', 'system']), _connector='OR'), name='message_boundary_is_no_speech'),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name='OAuthClient',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('client_id', models.CharField(editable=False, max_length=64, unique=True)),
                        ('name', models.CharField(max_length=255)),
                        ('redirect_uris', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=2000), size=None)),
                        ('registered_by', models.CharField(max_length=255)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                    ],
                    options={
                        'verbose_name': 'OAuth client',
                    },
                ),
                migrations.CreateModel(
                    name='OAuthGrant',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('granted_by', models.CharField(max_length=255)),
                        ('redirect_uri', models.CharField(max_length=2000)),
                        ('code_hash', models.CharField(max_length=64, unique=True)),
                        ('code_challenge', models.CharField(max_length=128)),
                        ('code_expires_at', models.DateTimeField()),
                        ('code_used_at', models.DateTimeField(blank=True, null=True)),
                        ('refresh_hash', models.CharField(blank=True, db_index=True, max_length=64)),
                        ('former_refresh_hash', models.CharField(blank=True, db_index=True, max_length=64)),
                        ('ends_at', models.DateTimeField()),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('client', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='sessions_app.oauthclient')),
                        ('key', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='grant', to='sessions_app.apikey')),
                    ],
                    options={
                        'verbose_name': 'OAuth grant',
                    },
                ),
                migrations.CreateModel(
                    name='ProfileVersion',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('summary', models.TextField(blank=True)),
                        ('interests', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                        ('preferred_topics', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                        ('actor', models.CharField(max_length=255)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='sessions_app.userprofile')),
                    ],
                    options={
                        'indexes': [models.Index(fields=['user', '-id'], name='profile_version_newest')],
                    },
                ),
                migrations.CreateModel(
                    name='Session',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('session_id', models.CharField(help_text="The application's own id for the session. The id must be unique for the user.", max_length=255)),
                        ('agent_id', models.CharField(default='default', max_length=255)),
                        ('source', models.CharField(default='api', help_text='Where the session comes from, such as api, discord or import.', max_length=64)),
                        ('title', models.CharField(blank=True, max_length=255)),
                        ('status', models.CharField(choices=[('active', 'Active'), ('cleared', 'Cleared')], default='active', max_length=16)),
                        ('message_count', models.PositiveBigIntegerField(default=0, help_text='Number of turns, including archived and deleted turns, but not partition events.')),
                        ('total_tokens', models.PositiveBigIntegerField(default=0)),
                        ('last_sequence', models.BigIntegerField(default=-1, help_text='Sequence number of the latest turn. −1 if the session has no turns.')),
                        ('last_activity_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Time of the latest message, according to the client.')),
                        ('last_moment_message_idx', models.BigIntegerField(blank=True, help_text='Sequence number of the last turn that belongs to a moment.', null=True, verbose_name='last turn in a moment')),
                        ('built_message_count', models.PositiveBigIntegerField(default=0, help_text='Number of turns in the session when moments were last built. Only later turns count toward the next build.', verbose_name='turns at the last build')),
                        ('built_total_tokens', models.PositiveBigIntegerField(default=0, help_text='Number of tokens in the session when moments were last built.', verbose_name='tokens at the last build')),
                        ('live_from_sequence', models.BigIntegerField(default=0, help_text='Sequence number of the first live turn. Models receive live turns word for word.', verbose_name='first live turn')),
                        ('live_tokens', models.PositiveBigIntegerField(default=0)),
                        ('metadata', models.JSONField(blank=True, default=dict)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='sessions_app.userprofile')),
                        ('formed_message_count', models.PositiveBigIntegerField(default=0, help_text='Number of turns that fact extraction has processed.')),
                        ('formed_weighted_tokens', models.FloatField(default=0, help_text='Number of tokens that fact extraction has processed, weighted by the role of each turn.')),
                        ('last_formation_sequence', models.BigIntegerField(blank=True, help_text='Sequence number of the last turn that fact extraction has processed.', null=True)),
                        ('weighted_tokens', models.FloatField(default=0, help_text='Number of tokens in the session. Tokens of assistant, tool and system turns count less than tokens of user turns.')),
                        ('counted_message_count', models.PositiveBigIntegerField(default=0, help_text="Number of turns in the session when the person's words were last counted.")),
                        ('embedded_sequence', models.BigIntegerField(default=-1, help_text='Sequence number of the last turn that was processed for searches by meaning. −1 if no turn was processed.')),
                        ('compact_on_request', models.BooleanField(blank=True, help_text='Whether to compact the session when a client loads its messages or requests a context. If blank, the setting SESSION_COMPACTION__ON_REQUEST applies.', null=True)),
                        ('kept_from_sequence', models.BigIntegerField(default=0, help_text='Sequence number of the first turn that is neither archived nor deleted.', verbose_name='first stored turn')),
                        ('legal_hold', models.BooleanField(default=False, help_text='Whether the session is under legal hold, which prevents archiving and deletion.')),
                        ('restored_at', models.DateTimeField(blank=True, help_text='When archived turns were last restored.', null=True)),
                        ('summarised_sequence', models.BigIntegerField(blank=True, help_text='Sequence number of the last turn that a summary covers.', null=True, verbose_name='last summarized turn')),
                        ('retraction_count', models.PositiveIntegerField(default=0, help_text='Number of retractions, plus the number of undone retractions. A running job starts again if this number changes.')),
                        ('last_arrived_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), default=django.utils.timezone.now, help_text="When the platform last received a message. The session's idle time starts then.")),
                    ],
                    options={
                        'permissions': [('preview_context', 'Can preview contexts of a session')],
                        'indexes': [
                            models.Index(fields=['user', '-last_activity_at', '-id'], name='session_user_activity'),
                            models.Index(fields=['-last_activity_at', '-id'], name='session_activity'),
                            models.Index(condition=models.Q(('message_count__gt', django.db.models.expressions.CombinedExpression(models.F('counted_message_count'), '*', models.Value(1.25)))), fields=['user'], name='session_grown'),
                            models.Index(condition=models.Q(('last_sequence__gte', models.F('kept_from_sequence'))), fields=['id'], name='session_kept'),
                            django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at'], name='session_created'),
                            models.Index(condition=models.Q(('message_count__gt', models.F('formed_message_count'))), fields=['last_arrived_at'], name='session_to_form'),
                            models.Index(condition=models.Q(('status', 'active')), fields=['last_arrived_at', 'id'], name='session_not_cleared'),
                        ],
                        'constraints': [models.UniqueConstraint(fields=('user', 'session_id'), name='session_unique_for_user')],
                    },
                ),
                migrations.CreateModel(
                    name='UserProfile',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('user_id', models.CharField(help_text="The application's own id for the person.", max_length=255)),
                        ('summary', models.TextField(blank=True, help_text='Summary of what is known about the person.')),
                        ('interests', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                        ('preferred_topics', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                        ('timezone', models.CharField(default='UTC', help_text='IANA time zone, such as Europe/Berlin.', max_length=64, validators=[sessions_app.models.user_profile.validate_timezone])),
                        ('metadata', models.JSONField(blank=True, default=dict)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('updated_at', models.DateTimeField(auto_now=True)),
                        ('application', models.ForeignKey(db_default=models.Value(1), db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.application')),
                        ('is_test', models.BooleanField(db_default=models.Value(False), default=False, editable=False, help_text='Whether operators created this person for tests in the playground.', verbose_name='test person')),
                    ],
                    options={
                        'verbose_name': 'user profile',
                        'permissions': [('read_userprofile', 'Can view all data of a person'), ('export_userprofile', 'Can export all data of a person')],
                        'indexes': [
                            models.Index(fields=['user_id'], name='user_profile_begins', opclasses=['varchar_pattern_ops']),
                            django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector(django.db.models.functions.text.Concat(models.Func(models.F('user_id'), models.Value('@._:/-|'), models.Value('       '), function='translate', output_field=models.TextField()), models.Value(' '), django.db.models.functions.text.Left('summary', 50000), output_field=models.TextField()), config='simple'), name='user_profile_words'),
                            models.Index(condition=models.Q(('is_test', True)), fields=['-id'], name='user_profile_test'),
                        ],
                        'constraints': [models.UniqueConstraint(fields=('application', 'user_id'), name='user_profile_unique_in_application')],
                    },
                ),
            ]
        ),
        RunDeferredSQL(),  # the foreign keys; the next statements rename one of them
        migrations.RunSQL("INSERT INTO sessions_app_application (name, created_at) VALUES ('default', now())"),
        migrations.RunSQL(SQL.read_text()),
        words_written("sessions_app_message", "content"),
        words_index("sessions_app_message", scope=SCOPE, condition=FOUND),
        recall("sessions_app_message", scope=SCOPE, time="created_at", condition=f"{FOUND} AND retracted_at IS NULL"),
        then("recall_sessions_app_message", "($5 IS NULL OR created_at >= $5)", "created_at <= {until}"),
    ]
