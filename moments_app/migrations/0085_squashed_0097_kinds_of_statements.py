"""Kinds of statements, and recipes of embedding models. Word searches always use the index of words."""

from django.db import migrations, models

from sessions_app.migrations._word_search import by_index


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0085_help_of_stream_models"),
        ("moments_app", "0086_recipes_of_embedding_models"),
        ("moments_app", "0089_kinds_of_statements"),
        ("moments_app", "0097_word_search_by_index"),
    ]

    dependencies = [("moments_app", "0084_squashed_no_release_by_rule")]

    operations = [
        migrations.RemoveConstraint(
            model_name="embeddingmodel",
            name="embedding_model_unique",
        ),
        migrations.AddField(
            model_name="embeddingmodel",
            name="document_prefix",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Prefix for stored texts that are sent to the embeddings endpoint.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            model_name="embeddingmodel",
            name="input_types",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Values of the parameter `input_type` for queries and for stored texts, such as "
                "search_query/search_document.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            model_name="embeddingmodel",
            name="is_filled",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Whether every text has a vector from this model."
            ),
        ),
        migrations.AddField(
            model_name="embeddingmodel",
            name="query_prefix",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Prefix for queries that are sent to the embeddings endpoint.",
                max_length=255,
            ),
        ),
        migrations.AddConstraint(
            model_name="embeddingmodel",
            constraint=models.UniqueConstraint(
                fields=("name", "dimensions", "query_prefix", "document_prefix", "input_types"),
                name="embedding_model_unique_recipe",
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="about_kind",
            field=models.CharField(
                choices=[("user", "User"), ("person", "Person"), ("agent", "Agent"), ("session", "Session")],
                db_default="session",
                default="session",
                editable=False,
                help_text="What the item is about: the user, another person, the agent, or the topic of a session.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="kind",
            field=models.CharField(
                choices=[
                    ("identity", "Identity"),
                    ("relationship", "Relationship"),
                    ("home", "Home"),
                    ("work", "Work"),
                    ("health", "Health"),
                    ("preference", "Preference"),
                    ("instruction", "Instruction"),
                    ("plan", "Plan"),
                    ("task", "Task"),
                    ("goal", "Goal"),
                    ("problem", "Problem"),
                    ("event", "Event"),
                    ("lesson", "Lesson"),
                    ("other", "Other"),
                ],
                db_default="other",
                default="other",
                help_text="What kind of information the item contains.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="speaker",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Name or role of the speaker whose words the item is based on. Blank if the item was written "
                "directly.",
                max_length=255,
            ),
        ),
        *map(by_index, ("sessions_app_message", "moments_app_memoryatom", "moments_app_moment")),
    ]
