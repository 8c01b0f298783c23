from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

UNINDEXED = models.Q(("search_version__lt", 1))


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [("moments_app", "0022_words_of_the_application")]

    operations = [
        AddIndexConcurrently(
            "memoryatom", models.Index(condition=UNINDEXED, fields=["user", "id"], name="atom_unindexed")
        ),
        AddIndexConcurrently(
            "moment", models.Index(condition=UNINDEXED, fields=["user", "id"], name="moment_unindexed")
        ),
        AddIndexConcurrently(
            "entity", models.Index(condition=UNINDEXED, fields=["user", "id"], name="entity_unindexed")
        ),
    ]
