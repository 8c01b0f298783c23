"""Have word searches of turns use the index of words."""

from django.db import migrations

from sessions_app.migrations._word_search import by_index


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0047_limits_of_keys_and_applications")]

    operations = [by_index("sessions_app_message")]
