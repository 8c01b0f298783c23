"""The tokens of served contexts by application and day, and the tokens of the whole sessions that they replace."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from django.db import connection, models

from sessions_app.models import Application

# Sorted by key, so that concurrent writers can't deadlock.
_ADD_SQL = """
INSERT INTO moments_app_contextusage AS counted (application_id, day, contexts, context_tokens, transcript_tokens)
SELECT added.* FROM unnest(%s::bigint[], %s::date[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS added (application_id, day, contexts, context_tokens, transcript_tokens)
WHERE EXISTS (SELECT FROM sessions_app_application WHERE id = added.application_id)
ORDER BY added.application_id, added.day
ON CONFLICT (application_id, day) DO UPDATE SET
    contexts = counted.contexts + excluded.contexts,
    context_tokens = counted.context_tokens + excluded.context_tokens,
    transcript_tokens = counted.transcript_tokens + excluded.transcript_tokens
"""


@dataclass(frozen=True)
class ContextTokens:
    """Counts of served contexts.

    Args:
        contexts: the number of contexts.
        context_tokens: the tokens in them.
        transcript_tokens: the tokens of their sessions' whole transcripts at that time.
    """

    contexts: int = 0
    context_tokens: int = 0
    transcript_tokens: int = 0

    def __add__(self, other: "ContextTokens") -> "ContextTokens":
        return ContextTokens(
            self.contexts + other.contexts,
            self.context_tokens + other.context_tokens,
            self.transcript_tokens + other.transcript_tokens,
        )


class ContextUsageQuerySet(models.QuerySet["ContextUsage"]):
    def add(self, counted: Mapping[tuple[int, date], ContextTokens]) -> None:
        """Add counts in one statement. They are keyed by the application's primary key and the day in UTC."""
        rows = [
            (application, day, one.contexts, one.context_tokens, one.transcript_tokens)
            for (application, day), one in counted.items()
        ]
        with connection.cursor() as cursor:
            cursor.execute(_ADD_SQL, list(map(list, zip(*rows, strict=True))))


class ContextUsage(models.Model):
    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(help_text="Day in UTC.")
    contexts = models.BigIntegerField()
    context_tokens = models.BigIntegerField()
    transcript_tokens = models.BigIntegerField()

    objects = ContextUsageQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["application", "day"], name="context_usage_unique")]
        indexes = [models.Index(fields=["day"], name="context_usage_day")]

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}"
