from django.db import migrations

# Each asks for turns apart from the statement that calls it: where turns are distributed, none may look for turns for
# each row of a table that is not. They see what their caller sees.
FIRST_WORDS = """
    CREATE FUNCTION first_words(person bigint, session bigint, most integer) RETURNS text LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN (
            SELECT left(content, most) FROM public.sessions_app_message
            WHERE session_id = session AND user_id = person AND kind = 'turn' AND role = 'user' AND retracted_at IS NULL
            ORDER BY sequence LIMIT 1
        );
    END $$
"""
SEQUENCES_OF_TURNS = """
    CREATE FUNCTION sequences_of_turns(person bigint, session bigint, ids bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN ARRAY(
            SELECT sequence FROM public.sessions_app_message
            WHERE user_id = person AND session_id = session AND id = ANY (ids) AND kind = 'turn' ORDER BY sequence
        );
    END $$
"""
# `words` is a list of the stems of each word. A turn belongs to one person, so a turn with a key of each word has all
# words: `sessions_app_message_words` finds exactly these. The keys are made within the statement, so it is planned
# without them: for many of them the planner would leave the index alone.
TURNS_WITH_WORDS = """
    CREATE FUNCTION turns_with_words(people bigint[], words jsonb, most integer)
    RETURNS TABLE (session_id bigint, sequence bigint, id bigint) LANGUAGE plpgsql STABLE ROWS 1000
    SET max_parallel_workers_per_gather = 0 AS $$
    DECLARE
        has_words text := (
            SELECT string_agg(format('public.memory_words(''u'' || user_id, search_vector) && ARRAY(
                SELECT ''u'' || person || '' '' || stem
                FROM unnest($1) person, jsonb_array_elements_text($2 -> %s) stem
            )', n), ' AND ') FROM generate_series(0, jsonb_array_length(words) - 1) n
        );
    BEGIN
        RETURN QUERY EXECUTE format(
            'SELECT session_id, sequence, id FROM public.sessions_app_message
             WHERE %s AND kind <> ''partition'' AND role <> ''system'' LIMIT $3', has_words
        ) USING people, words, most;
    END $$
"""


class Migration(migrations.Migration):
    """Functions that ask for turns for a row of another table."""

    dependencies = [("sessions_app", "0040_said_hash")]

    operations = [
        migrations.RunSQL(FIRST_WORDS, "DROP FUNCTION first_words"),
        migrations.RunSQL(SEQUENCES_OF_TURNS, "DROP FUNCTION sequences_of_turns"),
        migrations.RunSQL(TURNS_WITH_WORDS, "DROP FUNCTION turns_with_words"),
    ]
