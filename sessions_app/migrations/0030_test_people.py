from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Mark people who are nobody: operators chat as them."""

    atomic = False  # the index is built beside writes

    dependencies = [("sessions_app", "0027_words_of_people")]

    operations = [
        migrations.AddField(
            model_name="userprofile",
            name="is_test",
            field=models.BooleanField(
                db_default=models.Value(False),
                default=False,
                editable=False,
                help_text="Nobody: operators chat as this person in the playground.",
                verbose_name="test person",
            ),
        ),
        AddIndexConcurrently(
            "userprofile",
            models.Index(condition=models.Q(("is_test", True)), fields=["-id"], name="user_profile_test"),
        ),
    ]
