"""Rank turns faster."""

from django.db import migrations

from sessions_app.migrations._word_search import unpacked_once


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0052_squashed_0064_without_profile_versions")]

    operations = [unpacked_once("sessions_app_message")]
