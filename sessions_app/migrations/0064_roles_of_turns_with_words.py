from importlib import import_module

from django.db import migrations

EARLIER = import_module("sessions_app.migrations.0042_functions_on_turns").TURNS_WITH_WORDS
# As before, and the role of each turn.
TURNS_WITH_WORDS = """
    CREATE FUNCTION turns_with_words(people bigint[], words jsonb, most integer)
    RETURNS TABLE (session_id bigint, sequence bigint, id bigint, role varchar) LANGUAGE plpgsql STABLE ROWS 1000
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
            'SELECT session_id, sequence, id, role FROM public.sessions_app_message
             WHERE %s AND kind <> ''partition'' AND role <> ''system'' LIMIT $3', has_words
        ) USING people, words, most;
    END $$
"""
DROP = "DROP FUNCTION turns_with_words"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0062_help_texts")]

    operations = [migrations.RunSQL([DROP, TURNS_WITH_WORDS], [DROP, EARLIER])]
