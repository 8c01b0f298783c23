"""The words of a text become an ordinary column, which a trigger fills: what is archived keeps its words without it."""

from django.db import migrations

from sessions_app.word_search import CONFIG, MAX_CHARS


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0010_created_and_event_type")]

    operations = [
        migrations.RunSQL(
            sql=[
                "ALTER TABLE sessions_app_message ALTER COLUMN search_vector DROP EXPRESSION IF EXISTS",
                f"""
                CREATE OR REPLACE FUNCTION message_words() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    NEW.search_vector := to_tsvector('{CONFIG}', left(NEW.content, {MAX_CHARS}));
                    RETURN NEW;
                END $$
                """,
                """
                CREATE OR REPLACE TRIGGER message_words BEFORE INSERT OR UPDATE OF content ON sessions_app_message
                FOR EACH ROW WHEN (NEW.kind <> 'archived') EXECUTE FUNCTION message_words()
                """,
            ],
            reverse_sql=migrations.RunSQL.noop,  # a generated column would be written anew; the trigger does the same
        )
    ]
