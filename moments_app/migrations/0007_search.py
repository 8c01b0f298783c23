import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.row_security import protect
from sessions_app.word_search import add_search_vector, recall


class Migration(migrations.Migration):
    """Words by person: what recall finds facts, moments and turns by."""

    dependencies = [
        ("moments_app", "0006_streams"),
        ("sessions_app", "0004_search"),
    ]

    operations = [
        migrations.CreateModel(
            name="Vocabulary",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fact_count", models.PositiveBigIntegerField(default=0)),
                ("moment_count", models.PositiveBigIntegerField(default=0)),
                ("turn_count", models.PositiveBigIntegerField(default=0)),
                (
                    "fact_words",
                    models.PositiveBigIntegerField(default=0, help_text="Different words of each fact, added up."),
                ),
                ("moment_words", models.PositiveBigIntegerField(default=0)),
                ("turn_words", models.PositiveBigIntegerField(default=0)),
                ("counted_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name_plural": "vocabularies",
            },
        ),
        migrations.CreateModel(
            name="Word",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stem", models.TextField()),
                ("facts", models.PositiveIntegerField(default=0)),
                ("moments", models.PositiveIntegerField(default=0)),
                ("turns", models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.AlterField(
            model_name="memoryatom",
            name="user",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="atoms",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddIndex(
            model_name="memoryatom",
            index=models.Index(fields=["user", "-formed_at", "-id"], name="atom_user_newest"),
        ),
        migrations.AddField(
            model_name="vocabulary",
            name="stream",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="vocabulary",
                to="moments_app.memorystream",
            ),
        ),
        migrations.AddField(
            model_name="vocabulary",
            name="user",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="vocabulary",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddField(
            model_name="word",
            name="user",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddField(
            model_name="word",
            name="vocabulary",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="words",
                to="moments_app.vocabulary",
            ),
        ),
        migrations.AddConstraint(
            model_name="vocabulary",
            constraint=models.CheckConstraint(
                condition=models.Q(("user__isnull", True), ("stream__isnull", True), _connector="XOR"),
                name="vocabulary_of_person_or_shard",
            ),
        ),
        migrations.AddConstraint(
            model_name="word",
            constraint=models.UniqueConstraint(fields=("vocabulary", "stem"), name="word_unique_in_vocabulary"),
        ),
        add_search_vector("moments_app_memoryatom", "content"),
        recall(
            "moments_app_memoryatom",
            scope="COALESCE('u' || user_id, 's' || stream_id)",
            time="formed_at",
            condition="state = 'active' AND atom_type = 'fact'",
        ),
        recall("moments_app_moment", scope="'u' || user_id", time="ends_at"),
        protect("moments_app_vocabulary", privileges="SELECT", shared=True),
        protect("moments_app_word", privileges="SELECT", shared=True),
    ]
