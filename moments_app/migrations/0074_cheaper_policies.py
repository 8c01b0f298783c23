"""Policies that cost a request less: what they ask is asked once a statement, and planned apart from it.

A policy's condition is planned anew with each statement, for each time that its table is named, and evaluated for each
row. What nobody's rows hang on was looked up by a subquery, in a table with policies of its own, which were planned as
well. Two functions read the same with the right of the tables' owner, and only where such a row is met. And of tables
of which a statement reads many rows, the person is compared with a value that is read once.
"""

from django.db import migrations

from sessions_app.row_security import ACTING, ACTING_APPLICATION, MAY_CHANGE, ROLE

STREAMS, VOCABULARIES = "moments_app_memorystream", "moments_app_vocabulary"
PROMPTS = "moments_app_promptresource"
ONCE, APPLICATION_ONCE = f"(SELECT {ACTING})", f"(SELECT {ACTING_APPLICATION})"
READ_IN_NUMBERS = (
    "sessions_app_session",
    "sessions_app_message",
    "moments_app_summary",
    "moments_app_moment",
    "moments_app_memoryatom",
    "moments_app_entity",
    "moments_app_owntext",
    "moments_app_correctedturn",
    STREAMS,
)
# Names in such a body are bound when it is made, whatever the search path of the caller.
FUNCTION = "LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 BEGIN ATOMIC"
SHARDS_SEEN = f"""
    CREATE FUNCTION shards_seen() RETURNS SETOF bigint {FUNCTION}
        SELECT id FROM {STREAMS} WHERE user_id IS NULL AND application_id = {ACTING_APPLICATION};
    END;
"""  # noqa: S608 (names of our own tables)
VOCABULARIES_SEEN = f"""
    CREATE FUNCTION vocabularies_seen() RETURNS SETOF bigint {FUNCTION}
        SELECT vocabulary.id FROM {VOCABULARIES} vocabulary JOIN {STREAMS} stream ON stream.id = vocabulary.stream_id
        WHERE stream.user_id IS NULL AND stream.application_id = {ACTING_APPLICATION};
    END;
"""  # noqa: S608
OF_STREAM, OF_VOCABULARY = "stream_id IN (SELECT shards_seen())", "vocabulary_id IN (SELECT vocabularies_seen())"


def function(name: str, sql: str) -> migrations.RunSQL:
    """Return an operation that makes a function for requests alone."""
    rights = f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC; GRANT EXECUTE ON FUNCTION {name} TO {ROLE};"
    return migrations.RunSQL(f"{sql}{rights}", f"DROP FUNCTION {name}")


def policy(name: str, table: str, before: str, after: str) -> migrations.RunSQL:
    """Return an operation that changes the condition of a policy."""
    alter = f"ALTER POLICY {name} ON {table} USING"
    return migrations.RunSQL(f"{alter} ({after})", f"{alter} ({before})")


def seen_in(table: str, other: str, column: str) -> str:
    """Return the condition that has been there: that the row which a column names is seen."""
    return f"EXISTS (SELECT FROM {other} seen WHERE seen.id = {table}.{column})"


def everybodys(
    table: str, after: str, condition: str = "true", other: str = STREAMS, column: str = "stream_id"
) -> migrations.RunSQL:
    """Return an operation that changes how a table's rows of nobody are found to be of something that is seen."""
    start, end = "user_id IS NULL AND", f"AND {condition}"
    before = seen_in(table, other, column)
    return policy("everybodys_read", table, f"{start} {before} {end}", f"{start} {after} {end}")


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0072_searches_of_former_times")]

    operations = [
        function("shards_seen()", SHARDS_SEEN),
        function("vocabularies_seen()", VOCABULARIES_SEEN),
        everybodys("moments_app_memoryatom", OF_STREAM, f"(state <> 'evicted' OR {MAY_CHANGE})"),
        everybodys("moments_app_streamversion", OF_STREAM, f"(undone_at IS NULL OR {MAY_CHANGE})"),
        everybodys("moments_app_job", OF_STREAM),
        everybodys(VOCABULARIES, OF_STREAM),
        everybodys("moments_app_word", OF_VOCABULARY, other=VOCABULARIES, column="vocabulary_id"),
        policy(
            "everybodys_read",
            STREAMS,
            f"user_id IS NULL AND application_id = {ACTING_APPLICATION}",
            f"user_id IS NULL AND application_id = {APPLICATION_ONCE}",
        ),
        policy(
            "acting_user",
            PROMPTS,
            f"application_id IS NULL OR application_id = {ACTING_APPLICATION}",
            f"application_id IS NULL OR application_id = {APPLICATION_ONCE}",
        ),
        *(policy("acting_user", table, f"user_id = {ACTING}", f"user_id = {ONCE}") for table in READ_IN_NUMBERS),
    ]
