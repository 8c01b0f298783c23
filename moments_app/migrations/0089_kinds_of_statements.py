from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0097_word_search_by_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="memoryatom",
            name="about_kind",
            field=models.CharField(
                choices=[("user", "User"), ("person", "Person"), ("agent", "Agent"), ("session", "Session")],
                db_default="session",
                default="session",
                editable=False,
                help_text="Whether it is about its user, another person, the agent, or what a session is about.",
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
                help_text="What it tells of.",
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
                help_text="Who said it: a name or a role. Blank: it was written directly.",
                max_length=255,
            ),
        ),
        migrations.AlterField(
            model_name="memoryatom",
            name="is_pinned",
            field=models.BooleanField(
                default=False,
                help_text="Kept word for word: never consolidated, and in every context.",
                verbose_name="pinned",
            ),
        ),
        migrations.AlterField(
            model_name="memorystream",
            name="fact_buffer_max",
            field=models.PositiveSmallIntegerField(
                default=100, help_text="Newest facts in every context. Searches find all."
            ),
        ),
    ]
