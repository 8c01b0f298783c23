from django.db import migrations, models


class Migration(migrations.Migration):
    """The due times of tasks and goals, which become statements."""

    dependencies = [("moments_app", "0136_index_of_repeated_statements")]

    operations = [
        migrations.AddField(
            model_name="memoryatom",
            name="due_at",
            field=models.DateTimeField(
                "due", null=True, blank=True, help_text="When the task or goal is due. Blank if unknown."
            ),
        ),
    ]
