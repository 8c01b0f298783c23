"""The append-only event log."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, models
from django.db.models import Q
from django.utils import timezone
from psycopg.types.json import Jsonb

from sessions_app.models.application import Application
from sessions_app.models.user_profile import UserProfile

MOMENT_DELETED = "moment_deleted"
USER_READ = "user_read"
USER_EXPORTED = "user_exported"
READINGS = (USER_READ, USER_EXPORTED)
READ_EVERY = timedelta(hours=1)  # minimum time between two events about the same page, operator and person
KEY_ACTOR = "key:"  # prefix of actors that are API keys; the key's own prefix follows
ACTORS_IN_WORDS = {"append": "new messages", "retain": "retention"}

# FOR KEY SHARE waits for a running erasure of the person. After the erasure, no event is written. See
# `UserProfile.objects.protect`.
NOTE_READING_SQL = f"""
INSERT INTO sessions_app_event (type, actor, user_pk, payload, created_at)
SELECT '{USER_READ}', %(actor)s, person.id, %(payload)s, %(now)s FROM sessions_app_userprofile person
WHERE person.id = ANY(%(people)s) AND NOT EXISTS (
    SELECT FROM sessions_app_event earlier
    WHERE earlier.type = '{USER_READ}' AND earlier.user_pk = person.id AND earlier.created_at > %(since)s
        AND earlier.actor = %(actor)s AND earlier.payload = %(payload)s
)
FOR KEY SHARE OF person
"""  # noqa: S608 (a constant)


class EventQuerySet(models.QuerySet["Event"]):
    def note_reading(self, people: Iterable[int], *, actor: str, page: str, address: str) -> None:
        """Log that an operator (`actor`) viewed people's data: at most one event per hour, person and page.

        `people` are primary keys. `address` is the page's path, which contains primary keys, but no other data.
        """
        now = timezone.now()
        parameters: dict[str, Any] = {
            "people": list(people),
            "actor": actor,
            "payload": Jsonb({"page": page, "address": address}),
            "now": now,
            "since": now - READ_EVERY,
        }
        with connection.cursor() as cursor:
            cursor.execute(NOTE_READING_SQL, parameters)

    def readings_of(self, user: UserProfile) -> "EventQuerySet":
        """Return the events about views and exports of a person's data, newest first."""
        return self.filter(type__in=READINGS, user_pk=user.pk).order_by("-created_at", "-id")

    def expired_readings(self) -> "EventQuerySet":
        """Return events older than `READING_DAYS` about viewed data. Events about exports are permanent."""
        return self.filter(type=USER_READ, created_at__lt=timezone.now() - timedelta(days=settings.READING_DAYS))

    def deleted_moment_ranges(self, user: UserProfile, session_pk: int) -> list[tuple[int, int]]:
        """Return the ranges of turns whose moments were deleted. No new moments are built from these turns."""
        deleted = self.filter(user_pk=user.pk, session_pk=session_pk, type=MOMENT_DELETED)
        ranges = deleted.filter(payload__has_keys=["first_sequence", "last_sequence"])
        payloads = ranges.values_list("payload", flat=True)
        return [(payload["first_sequence"], payload["last_sequence"]) for payload in payloads]


class Event(models.Model):
    """One event. People and sessions are plain ids, so an erasure can blank them and keep the log."""

    type = models.CharField(max_length=64)
    actor = models.CharField(
        max_length=255,
        help_text="What caused the event, such as an API key (key:…), an operator (operator:…) or a job (job:…).",
    )
    application = models.ForeignKey(
        Application,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="The application that the event belongs to. Blank if the event is about a person, or is site-wide.",
    )
    user_pk = models.BigIntegerField(null=True, blank=True)
    session_pk = models.BigIntegerField(null=True, blank=True)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="event_newest"),
            models.Index(fields=["type", "-created_at", "-id"], name="event_type_newest"),
            models.Index(fields=["user_pk", "-id"], name="event_user"),
            models.Index(
                fields=["user_pk", "-created_at", "-id"], condition=Q(type__in=READINGS), name="event_reading"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type.replace('_', ' ')} {self.created_at:%Y-%m-%d %H:%M}"


def named_actor(actor: str, key_name: str | None = None) -> str:
    """Return the name of an actor for display, such as "operator eve". For an API key, use `key_name` if given."""
    if key_name and actor.startswith(KEY_ACTOR):
        return f"key “{key_name}”"
    kind, _, name = actor.partition(":")
    return f"{ACTORS_IN_WORDS.get(kind, kind.replace('_', ' '))} {name}".strip()
