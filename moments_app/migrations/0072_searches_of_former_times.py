"""Searches of a former time: beside each function that searches, one that finds only what was there then.

It is made of the other as that stands, so that it ranks and limits alike, and filters within the search: what was said
since takes no place of what was known then, however much it is. The time is a setting of the transaction, because the
statements within are strings with numbered parameters of their own.
"""

from django.db import migrations
from django.db.migrations import RunSQL

ROLE = "memory_request"
UNTIL = "current_setting('memory.until')::timestamptz"
HELD = (
    "{fact}formed_at <= {until} AND COALESCE({fact}corrected_at <= {until}, true) "
    "AND COALESCE({fact}valid_from <= {until}, true) "
    "AND NOT COALESCE({fact}valid_until <= {until} AND {fact}ended_at <= {until}, false)"
)
SOURCE_HELD = "EXISTS (SELECT FROM moments_app_memoryatom fact WHERE fact.id = embedding.source_id AND {held})"


def search_then(name: str, parameters: str, *, since: str, then: str) -> RunSQL:
    """Return an operation that makes `<name>_then` of a function that searches: its last parameter is the time.

    Args:
        name: of the function.
        parameters: the types of its parameters, and of the new one.
        since: SQL of its own limit of time, beside which the new one is put.
        then: SQL of what was there then.
    """
    return RunSQL(
        sql=f"""
            DO $do$
            DECLARE
                made text := pg_get_functiondef('{name}'::regproc);
                changes text[] := ARRAY[
                    ['{name}(', '{name}_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s${since}$s$, $s${since} AND {then}$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', '{name}', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION {name}_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION {name}_then TO {ROLE};
        """,
        reverse_sql=f"DROP FUNCTION {name}_then({parameters})",
    )


def recall_then(table: str, time: str, then: str) -> RunSQL:
    """Return the operation for a table that is searched by words; `time` tells which of its rows is newer."""
    words = "bigint, text[], text[], text[], boolean, text[], float8[], float8, timestamptz, integer, timestamptz"
    return search_then(f"recall_{table}", words, since=f"($5 IS NULL OR {time} >= $5)", then=then)


def nearest_then(table: str, held: str) -> RunSQL:
    """Return the operation for a table of vectors."""
    vectors = "bigint, bigint[], bigint, integer, text, timestamptz, integer, timestamptz"
    then = f"embedding.said_at <= {UNTIL}{held}"
    return search_then(f"nearest_{table}", vectors, since="($3 IS NULL OR embedding.said_at >= $3)", then=then)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0071_webhooks"), ("sessions_app", "0033_turns_by_arrival")]

    operations = [
        recall_then("moments_app_memoryatom", "formed_at", HELD.format(fact="", until=UNTIL)),
        recall_then("moments_app_moment", "ends_at", f"ends_at <= {UNTIL}"),
        recall_then("sessions_app_message", "created_at", f"created_at <= {UNTIL}"),
        nearest_then(
            "moments_app_factembedding", f" AND {SOURCE_HELD.format(held=HELD.format(fact='fact.', until=UNTIL))}"
        ),
        nearest_then("moments_app_momentembedding", ""),
        nearest_then("moments_app_turnembedding", ""),
    ]
