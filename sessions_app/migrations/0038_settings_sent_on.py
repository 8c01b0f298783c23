from django.db import migrations

# By which a transaction says for whom it works. Where tables are distributed, `distribute` puts one in its place that
# tells the other nodes too.
MEMORY_SET = """
    CREATE FUNCTION memory_set(name text, value text) RETURNS text LANGUAGE sql VOLATILE AS $$
        SELECT pg_catalog.set_config(name, value, true)
    $$
"""


class Migration(migrations.Migration):
    """Say for whom a transaction works by a function of our own."""

    dependencies = [("sessions_app", "0037_revoked_assistants")]

    operations = [migrations.RunSQL(MEMORY_SET, "DROP FUNCTION memory_set(text, text)")]
