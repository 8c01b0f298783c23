"""People and transcripts for a realistic database. An empty one would be fast, and would have other query plans."""

from django.db import connection

from benchmarks.clients import WORDS

PEOPLE = 2_000
TURNS = 50  # turns of each person

SEED_PEOPLE = """
INSERT INTO sessions_app_userprofile
    (user_id, summary, interests, preferred_topics, timezone, metadata, created_at, updated_at)
SELECT 'person-' || n, '', '{}', '{}', 'UTC', '{}', now(), now() FROM generate_series(1, %s) AS n
"""
SEED_SESSIONS = """
INSERT INTO sessions_app_session
    (user_id, session_id, agent_id, source, title, status, message_count, total_tokens, last_sequence,
     last_activity_at, built_message_count, built_total_tokens, live_from_sequence, live_tokens, weighted_tokens,
     formed_message_count, formed_weighted_tokens, counted_message_count, embedded_sequence,
     kept_from_sequence, legal_hold, retraction_count, metadata, created_at)
SELECT id, 'chat', 'default', 'api', '', 'active', %(turns)s, 27 * %(turns)s, %(turns)s - 1,
       now(), 0, 0, 0, 27 * %(turns)s, 0, %(turns)s, 0, %(turns)s, -1, 0, false, 0, '{}', now()
FROM sessions_app_userprofile
"""
SEED_TURNS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, external_id, created_at, metadata)
SELECT session.id, user_id, n, 'turn', CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END, '', %(text)s, 27, 'm' || n,
       session.created_at - interval '1 year' + n * interval '1 minute', '{}'
FROM sessions_app_session AS session, generate_series(session.last_sequence + 1 - %(turns)s, session.last_sequence) AS n
WHERE session.id = COALESCE(%(session)s, session.id)
"""
# PostgreSQL computes the words of rows that are inserted by SQL. The application computes its own.
INDEX = """
CREATE OR REPLACE FUNCTION seeded_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.search_vector := to_tsvector('english', concat_ws(' ', {texts}));
    NEW.search_version := 1;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER seeded_words BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.search_vector IS NULL)
    EXECUTE FUNCTION seeded_{table}()
"""


def index_what_is_seeded() -> None:
    """Let the database compute the words of rows that the application doesn't write."""
    from moments_app.recall.index_words import tables

    with connection.cursor() as cursor:
        for table in tables():
            texts = ", ".join(f"NEW.{text}" for text in table.SEARCHED)
            cursor.execute(INDEX.format(table=table._meta.db_table, texts=texts))


def populate() -> None:
    """Create two thousand people with a short session each."""
    with connection.cursor() as cursor:
        cursor.execute(SEED_PEOPLE, [PEOPLE])
        cursor.execute(SEED_SESSIONS, {"turns": TURNS})
        cursor.execute(SEED_TURNS, {"turns": TURNS, "session": None, "text": WORDS})
    settle()


def settle() -> None:
    """Run the maintenance that PostgreSQL would otherwise start during a measurement."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
