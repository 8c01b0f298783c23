import django.db.models.deletion
from django.db import migrations, models

# What shards have from sessions that are still there.
FILL_SQL = """
UPDATE moments_app_memoryatom atom SET source_user_id = session.user_id
FROM sessions_app_session session WHERE session.id = atom.source_session_id AND atom.user_id IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0013_engine_call_day"),
        ("sessions_app", "0006_lifecycle"),
    ]

    operations = [
        migrations.AddField(
            model_name="memoryatom",
            name="source_user",
            field=models.ForeignKey(
                blank=True,
                help_text="Who said what a shard has: it goes with that person, even if the session went before.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.RunSQL(FILL_SQL, migrations.RunSQL.noop),
    ]
