"""Streams of people take in facts: what has one value at a time is kept by itself, with when it held."""

from django.db import migrations

BEFORE = (
    "What this says about the person for good: preferences, instructions on how to be answered, and "
    "lasting context of their life and work."
)
AFTER = (
    f"{BEFORE} As facts: what has one value at a time, such as where they live, what they "
    "work as, names, ages, dates, health."
)


def take_in_facts(apps, schema_editor):  # type: ignore[no-untyped-def]
    streams = apps.get_model("moments_app", "MemoryStream").objects.filter(stream_type="user", extraction_prompt=BEFORE)
    streams.update(extracts_facts=True, extraction_prompt=AFTER)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0053_facts_in_time_indexed")]

    operations = [migrations.RunPython(take_in_facts, migrations.RunPython.noop)]
