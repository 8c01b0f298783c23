"""Facts and moments whose words have no places, as whoever writes past the application may leave them, are ranked."""

from django.db import migrations

from sessions_app.word_search import rank_without_places


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0059_related_users")]

    operations = [rank_without_places("moments_app_memoryatom"), rank_without_places("moments_app_moment")]
