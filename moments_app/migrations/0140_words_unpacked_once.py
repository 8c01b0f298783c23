"""Rank facts and moments faster."""

from django.db import migrations

from sessions_app.migrations._word_search import unpacked_once


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0139_without_entities"),
        ("sessions_app", "0065_words_unpacked_once"),
    ]

    operations = [unpacked_once("moments_app_memoryatom"), unpacked_once("moments_app_moment")]
