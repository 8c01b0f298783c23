"""The newest moments by when they ended, as searches, the chain and lists want them."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("moments_app", "0017_recall_plan")]

    operations = [
        AddIndexConcurrently(
            model_name="moment",
            index=models.Index(fields=["user", "-ends_at", "-id"], name="moment_user_latest"),
        ),
    ]
