from django.db import migrations, models

from sessions_app.word_search import recall_anew

TURNS = "kind = 'turn' AND role <> 'system'"


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0007_digests"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="retraction_count",
            field=models.PositiveIntegerField(
                default=0,
                help_text="Retractions, and undone ones, so far: work that was begun before the last is done again.",
            ),
        ),
        recall_anew(
            "sessions_app_message",
            scope="'u' || user_id",
            time="created_at",
            condition=f"{TURNS} AND retracted_at IS NULL",
            before=TURNS,
        ),
    ]
