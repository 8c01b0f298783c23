from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built while the table is written to

    dependencies = [("sessions_app", "0011_words_of_the_application")]

    operations = [
        AddIndexConcurrently(
            "message",
            models.Index(
                condition=models.Q(("search_version__lt", 1)), fields=["user", "id"], name="message_unindexed"
            ),
        ),
    ]
