"""Drop the versions of profiles, and let `turns_with_words` return the role of each turn."""

from django.db import migrations

# `words` is a list of the stems of each word. A turn belongs to one person, so a turn with a key of each word has all
# words: `sessions_app_message_words` finds exactly these. The keys are made within the statement, so it is planned
# without them: for many of them the planner would leave the index alone.
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


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0052_without_profile_versions"),
        ("sessions_app", "0053_help_texts"),
        ("sessions_app", "0054_help_texts"),
        ("sessions_app", "0056_help_texts"),
        ("sessions_app", "0057_help_texts"),
        ("sessions_app", "0059_help_texts"),
        ("sessions_app", "0060_help_texts"),
        ("sessions_app", "0062_help_texts"),
        ("sessions_app", "0064_roles_of_turns_with_words"),
    ]

    dependencies = [("sessions_app", "0047_limits_of_keys_and_applications")]

    operations = [
        migrations.DeleteModel("ProfileVersion"),
        migrations.RunSQL(["DROP FUNCTION IF EXISTS turns_with_words", TURNS_WITH_WORDS]),
    ]
