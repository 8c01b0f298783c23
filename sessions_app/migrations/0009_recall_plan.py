"""Finds the newest turns with a common word by their keys, however many turns the table has."""

from django.db import migrations

from sessions_app.word_search import recall_anew

BELIEVED = "kind = 'turn' AND role <> 'system' AND retracted_at IS NULL"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0008_retraction")]

    operations = [
        recall_anew(
            "sessions_app_message", scope="'u' || user_id", time="created_at", condition=BELIEVED, before=BELIEVED
        )
    ]
