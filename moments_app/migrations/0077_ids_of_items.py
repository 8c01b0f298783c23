from django.db import migrations, models


class Migration(migrations.Migration):
    """A client's own id of an item, and of a task, goal or problem."""

    dependencies = [("moments_app", "0076_trace_of_a_job")]

    operations = [
        migrations.AddField(
            "memoryatom",
            "external_id",
            models.CharField(
                blank=True,
                editable=False,
                help_text="The client's own id of it; blank: it gave none.",
                max_length=255,
                null=True,
            ),
        ),
        migrations.AddField(
            "entity",
            "external_id",
            models.CharField(
                blank=True,
                editable=False,
                help_text="The client's own id of it; blank: it gave none.",
                max_length=255,
                null=True,
            ),
        ),
    ]
