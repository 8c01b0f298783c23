from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations, models
from django.db.models.functions import Concat, Left


class Migration(migrations.Migration):
    """Let operators find people by words of name and text."""

    atomic = False  # the index is built beside writes

    dependencies = [("sessions_app", "0025_words_without_places")]

    operations = [
        AddIndexConcurrently(
            "userprofile",
            GinIndex(
                SearchVector(
                    Concat(
                        models.Func(
                            models.F("user_id"),
                            models.Value("@._:/-|"),
                            models.Value(" " * 7),
                            function="translate",
                            output_field=models.TextField(),
                        ),
                        models.Value(" "),
                        Left("summary", 50_000),
                        output_field=models.TextField(),
                    ),
                    config="simple",
                ),
                name="user_profile_words",
            ),
        ),
    ]
