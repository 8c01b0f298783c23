"""Turns whose words have no places, as whoever writes past the application may leave them, are ranked like others."""

from django.db import migrations

from sessions_app.word_search import rank_without_places


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0023_database_roles")]

    operations = [rank_without_places("sessions_app_message")]
