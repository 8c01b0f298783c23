"""A person's moments by when they happened, in one order everywhere; the orders that were read before are gone."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("moments_app", "0023_unindexed_memory")]

    operations = [
        AddIndexConcurrently(
            model_name="moment",
            index=models.Index(fields=["user", "-ends_at", "-first_sequence", "-id"], name="moment_user_in_time"),
        ),
        RemoveIndexConcurrently(model_name="moment", name="moment_user_newest"),
        RemoveIndexConcurrently(model_name="moment", name="moment_user_latest"),
    ]
