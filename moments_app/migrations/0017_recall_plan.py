"""Finds the newest facts and moments with a common word by their keys, however many the tables have."""

from django.db import migrations

from sessions_app.word_search import recall_anew

FACTS = "state = 'active' AND atom_type = 'fact'"


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0016_job_ended")]

    operations = [
        recall_anew(
            "moments_app_memoryatom",
            scope="COALESCE('u' || user_id, 's' || stream_id)",
            time="formed_at",
            condition=FACTS,
            before=FACTS,
        ),
        recall_anew("moments_app_moment", scope="'u' || user_id", time="ends_at", condition="true", before="true"),
    ]
