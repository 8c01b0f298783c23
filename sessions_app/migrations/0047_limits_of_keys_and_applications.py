"""Drop the daily limits and the usage of persons and of stored bytes.

Each statement can run again. Each table is locked by one statement of its own, for a moment. A column's indexes and
constraints go with it.
"""

from django.db import migrations
from django.db.migrations.operations.base import Operation
from django.db.models import CheckConstraint, Q

LIMITS, USAGE = "sessions_app_dailylimit", "sessions_app_dailyusage"
OLD_FUNCTION = "count_usage(text, bigint, text, bigint, bigint, bigint, bigint, numeric, date)"
FUNCTION = "count_usage(text, bigint, bigint, bigint, numeric, date)"
COUNT_USAGE = """
CREATE OR REPLACE FUNCTION count_usage(
    kind text, pk bigint, more_requests bigint, more_calls bigint, more_usd numeric, on_day date
) RETURNS TABLE (
    requests bigint, model_calls bigint, usd numeric, most_requests bigint, most_calls bigint, most_usd numeric
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    of_key bigint := CASE kind WHEN 'key' THEN pk END;
    of_application bigint := CASE kind WHEN 'application' THEN pk END;
    holder bigint := (SELECT held.user_id FROM sessions_app_apikey held WHERE held.id = of_key);
BEGIN
    IF more_requests + more_calls + more_usd > 0 THEN
        UPDATE sessions_app_dailyusage AS counted SET requests = counted.requests + more_requests,
            model_calls = counted.model_calls + more_calls, usd = counted.usd + more_usd
        WHERE counted.id = (
            SELECT free.id FROM sessions_app_dailyusage free
            WHERE free.day = on_day AND (free.key_id = of_key OR free.application_id = of_application)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            -- Writes nothing while the key, its person or the application is being deleted.
            IF holder IS NOT NULL THEN
                PERFORM FROM sessions_app_userprofile person WHERE person.id = holder FOR KEY SHARE SKIP LOCKED;
            ELSIF of_key IS NOT NULL THEN
                PERFORM FROM sessions_app_apikey held WHERE held.id = of_key FOR KEY SHARE SKIP LOCKED;
            ELSE
                PERFORM FROM sessions_app_application held WHERE held.id = of_application FOR KEY SHARE SKIP LOCKED;
            END IF;
            IF FOUND THEN
                INSERT INTO sessions_app_dailyusage (key_id, application_id, day, requests, model_calls, usd)
                VALUES (of_key, of_application, on_day, more_requests, more_calls, more_usd);
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT total.*, own.requests, own.model_calls, own.usd::numeric FROM (
        SELECT COALESCE(sum(today.requests), 0)::bigint, COALESCE(sum(today.model_calls), 0)::bigint,
            COALESCE(sum(today.usd), 0)::numeric
        FROM sessions_app_dailyusage today
        WHERE today.day = on_day AND (today.key_id = of_key OR today.application_id = of_application)
    ) total LEFT JOIN sessions_app_dailylimit own ON own.key_id = of_key OR own.application_id = of_application;
END $$
"""


def statements(*sql: str) -> list[migrations.RunSQL]:
    """Return an operation per statement: each commits before the next one begins."""
    return [migrations.RunSQL(one) for one in sql]


def without_persons(table: str, name: str, constraint: str, *gone: Operation) -> list[migrations.RunSQL]:
    """Return the operations that drop a table's rows of persons and its columns of persons and bytes.

    Args:
        table: The table's name in the database.
        name: The model's name, in lower case.
        constraint: The name of the constraint that a row has exactly one subject.
        gone: What else leaves the model's state before its columns.
    """
    seen = f"EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = {table}.key_id)"
    return [
        *statements(
            f"DROP POLICY IF EXISTS acting_user ON {table}",
            f"REVOKE ALL ON {table} FROM memory_request",
            f"ALTER POLICY operators ON {table} USING ({seen})",
            f"DELETE FROM {table} WHERE key_id IS NULL AND application_id IS NULL",  # noqa: S608 (names of our own)
        ),
        migrations.RunSQL(
            f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {constraint}, DROP COLUMN IF EXISTS user_id,"
            f" DROP COLUMN IF EXISTS stored_bytes, ADD CONSTRAINT {constraint}"
            " CHECK ((key_id IS NULL) <> (application_id IS NULL)) NOT VALID",
            state_operations=[
                migrations.RemoveConstraint(name, constraint),
                *gone,
                migrations.RemoveField(name, "user"),
                migrations.RemoveField(name, "stored_bytes"),
                migrations.AddConstraint(name, CheckConstraint(condition=ONE_SUBJECT, name=constraint)),
            ],
        ),
        *statements(f"ALTER TABLE {table} VALIDATE CONSTRAINT {constraint}"),
    ]


ONE_SUBJECT = (Q(key__isnull=False) & ~Q(application__isnull=False)) | (
    Q(application__isnull=False) & ~Q(key__isnull=False)
)


class Migration(migrations.Migration):
    atomic = False  # so that no table waits for another

    dependencies = [("sessions_app", "0046_without_oauth")]

    operations = [
        *statements(
            COUNT_USAGE,
            f"REVOKE ALL ON FUNCTION {FUNCTION} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {FUNCTION} TO memory_request",
            f"DROP FUNCTION IF EXISTS {OLD_FUNCTION}",
        ),
        *without_persons(
            LIMITS,
            "dailylimit",
            "daily_limit_of_one",
            migrations.RemoveConstraint("dailylimit", "daily_limit_of_person"),
        ),
        *without_persons(
            USAGE, "dailyusage", "daily_usage_of_one", migrations.RemoveIndex("dailyusage", "daily_usage_of_person")
        ),
    ]
