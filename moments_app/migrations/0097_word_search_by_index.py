"""Have word searches of facts and moments use the index of words."""

from django.db import migrations

from sessions_app.migrations._word_search import by_index


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0088_without_probes")]

    operations = [by_index(table) for table in ("sessions_app_message", "moments_app_memoryatom", "moments_app_moment")]
