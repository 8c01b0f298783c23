"""Limits a day, what is used of them, and the function that counts it."""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import APPLICATIONS, let_operators, of_person, seen
from sessions_app.row_security import ACTING, IS_REQUEST, ROLE, protect

PARAMETERS = (
    "kind text, pk bigint, name text, application bigint, "
    "more_requests bigint, more_bytes bigint, more_calls bigint, more_usd numeric, on_day date"
)
COUNTED = "requests bigint, stored_bytes bigint, model_calls bigint, usd numeric"
LIMITS = "most_requests bigint, most_bytes bigint, most_calls bigint, most_usd numeric"
PERSON = "SELECT person.id FROM sessions_app_userprofile person"

# Whomever a request names, it counts for no other person than the one it acts for. What is locked is passed over, so
# nobody waits: neither for another who counts, nor for an erasure, during which nothing is written of the person.
COUNT_SQL = f"""
CREATE FUNCTION count_usage({PARAMETERS}) RETURNS TABLE ({COUNTED}, {LIMITS})
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    of_key bigint := CASE kind WHEN 'key' THEN pk END;
    of_application bigint := CASE kind WHEN 'application' THEN pk END;
    of_person bigint := CASE WHEN kind <> 'person' THEN NULL WHEN {IS_REQUEST} THEN {ACTING} WHEN pk IS NOT NULL THEN pk
        ELSE ({PERSON} WHERE person.application_id = application AND person.user_id = name) END;
    holder bigint := CASE kind WHEN 'key' THEN (SELECT held.user_id FROM sessions_app_apikey held WHERE held.id = pk)
        ELSE of_person END;
BEGIN
    IF more_requests + more_bytes + more_calls + more_usd > 0 THEN
        UPDATE sessions_app_dailyusage AS counted SET
            requests = counted.requests + more_requests, stored_bytes = counted.stored_bytes + more_bytes,
            model_calls = counted.model_calls + more_calls, usd = counted.usd + more_usd
        WHERE counted.id = (
            SELECT free.id FROM sessions_app_dailyusage free
            WHERE free.day = on_day
            AND (free.key_id = of_key OR free.user_id = of_person OR free.application_id = of_application)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            IF holder IS NOT NULL THEN
                PERFORM FROM sessions_app_userprofile person WHERE person.id = holder FOR KEY SHARE SKIP LOCKED;
            ELSIF of_key IS NOT NULL THEN
                PERFORM FROM sessions_app_apikey held WHERE held.id = of_key FOR KEY SHARE SKIP LOCKED;
            ELSE
                PERFORM FROM sessions_app_application held WHERE held.id = of_application FOR KEY SHARE SKIP LOCKED;
            END IF;
            IF FOUND THEN
                INSERT INTO sessions_app_dailyusage (
                    key_id, user_id, application_id, day, requests, stored_bytes, model_calls, usd
                ) VALUES (
                    of_key, of_person, of_application, on_day, more_requests, more_bytes, more_calls, more_usd
                );
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT total.*, own.requests, own.stored_bytes, own.model_calls, own.usd::numeric FROM (
        SELECT COALESCE(sum(today.requests), 0)::bigint, COALESCE(sum(today.stored_bytes), 0)::bigint,
            COALESCE(sum(today.model_calls), 0)::bigint, COALESCE(sum(today.usd), 0)::numeric
        FROM sessions_app_dailyusage today
        WHERE today.day = on_day
        AND (today.key_id = of_key OR today.user_id = of_person OR today.application_id = of_application)
    ) total LEFT JOIN sessions_app_dailylimit own
        ON own.key_id = of_key OR own.user_id = of_person OR own.application_id = of_application;
END $$;
REVOKE ALL ON FUNCTION count_usage({PARAMETERS}) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_usage({PARAMETERS}) TO {ROLE};
"""  # noqa: S608 (names of our own tables)


def subject(table: str, **fields: str) -> "models.ForeignKey[models.Model, models.Model]":
    """Return the reference to somebody who has limits."""
    return models.ForeignKey(
        blank=True,
        db_index=False,
        null=True,
        on_delete=django.db.models.deletion.CASCADE,
        to=f"sessions_app.{table}",
        **fields,
    )


COLUMNS = ("key", "user", "application")
SUBJECT = [
    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
    ("key", subject("apikey")),
    ("user", subject("userprofile", verbose_name="person")),
    ("application", subject("application")),
]
OF_ONE = models.Q(
    *(models.Q(*((f"{other}__isnull", other != column) for other in sorted(COLUMNS))) for column in COLUMNS),
    _connector="OR",
)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0020_limited_operators")]

    operations = [
        migrations.CreateModel(
            name="DailyLimit",
            fields=[
                *SUBJECT,
                ("requests", models.PositiveBigIntegerField(blank=True, null=True)),
                ("stored_bytes", models.PositiveBigIntegerField(blank=True, null=True)),
                ("model_calls", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "usd",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="USD",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=OF_ONE, name="daily_limit_of_one"),
                    models.UniqueConstraint(fields=("key",), name="daily_limit_of_key"),
                    models.UniqueConstraint(fields=("user",), name="daily_limit_of_person"),
                    models.UniqueConstraint(fields=("application",), name="daily_limit_of_application"),
                ]
            },
        ),
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                *SUBJECT,
                ("day", models.DateField(help_text="In UTC.")),
                ("requests", models.BigIntegerField(default=0)),
                ("stored_bytes", models.BigIntegerField(default=0)),
                ("model_calls", models.BigIntegerField(default=0)),
                ("usd", models.DecimalField(decimal_places=6, default=0, max_digits=16)),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q((f"{column}__isnull", False)), fields=[column, "day"], name=name)
                    for column, name in (
                        ("key", "daily_usage_of_key"),
                        ("user", "daily_usage_of_person"),
                        ("application", "daily_usage_of_application"),
                    )
                ],
                "constraints": [models.CheckConstraint(condition=OF_ONE, name="daily_usage_of_one")],
            },
        ),
        protect("sessions_app_dailylimit", privileges="SELECT"),
        protect("sessions_app_dailyusage", privileges="SELECT"),
        # What an application may use is the site's to say.
        *(
            let_operators(
                table,
                f"{of_person(table)} OR {seen(table, 'sessions_app_apikey', 'key_id')}",
                read=f"application_id = ANY({APPLICATIONS})",
            )
            for table in ("sessions_app_dailylimit", "sessions_app_dailyusage")
        ),
        migrations.RunSQL(COUNT_SQL, f"DROP FUNCTION count_usage({PARAMETERS})"),
    ]
