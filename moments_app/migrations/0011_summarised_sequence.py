from django.db import migrations

# What summaries cover that were made before sessions kept it.
FILL_SQL = """
UPDATE sessions_app_session session SET summarised_sequence = summary.last
FROM (
    SELECT session_id, max(end_sequence) AS last FROM moments_app_summary WHERE status = 'completed' GROUP BY session_id
) summary
WHERE summary.session_id = session.id
"""


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0010_pins"),
        ("sessions_app", "0006_lifecycle"),
    ]

    operations = [migrations.RunSQL(FILL_SQL, migrations.RunSQL.noop)]
