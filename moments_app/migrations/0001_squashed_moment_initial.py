"""Moments, to which messages refer. `0002_squashed_0081_initial` adds the references to other tables."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import sessions_app.models.searched
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("moments_app", "0001_initial")]

    initial = True

    operations = [
        migrations.CreateModel(
            name='Moment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.SlugField(allow_unicode=True, db_index=False, max_length=120)),
                ('name', models.CharField(max_length=255)),
                ('category', models.CharField(default='session-compression', max_length=64)),
                ('summary', models.TextField()),
                ('detail', models.TextField(blank=True)),
                ('topic_tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('emotion_tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('present_persons', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('first_sequence', models.BigIntegerField()),
                ('last_sequence', models.BigIntegerField()),
                ('previous_moment_keys', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=3)),
                ('engine', models.CharField(max_length=255)),
                ('search_vector', sessions_app.models.searched.WordsField(editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [
                    django.contrib.postgres.indexes.GinIndex(fields=['topic_tags'], name='moment_topics'),
                    django.contrib.postgres.indexes.GinIndex(fields=['search_vector'], name='moment_search'),
                    django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at'], name='moment_created'),
                    models.Index(fields=['category', '-id'], name='moment_category_newest'),
                    models.Index(fields=['starts_at'], name='moment_starts_at'),
                    models.Index(fields=['key'], name='moment_key_prefix', opclasses=['varchar_pattern_ops']),
                    django.contrib.postgres.indexes.GinIndex(fields=['emotion_tags'], name='moment_emotions'),
                ],
                'constraints': [models.CheckConstraint(condition=models.Q(('first_sequence__lte', models.F('last_sequence'))), name='moment_range_in_order')],
            },
        ),
    ]
