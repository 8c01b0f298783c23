"""Nothing. The migrations that create fields have their help texts, and the next migration depends on this one."""

from django.db import migrations


class Migration(migrations.Migration):
    replaces = [("moments_app", "0098_help_texts")]

    dependencies = [
        ("moments_app", "0088_squashed_without_probes"),
        ("moments_app", "0090_nothing_evicted_by_a_buffer"),
    ]
