"""The append-only log of what happened."""

from django.db import models

from sessions_app.models.application import Application
from sessions_app.models.user_profile import UserProfile

MOMENT_DELETED = "moment_deleted"


class EventQuerySet(models.QuerySet["Event"]):
    def left_out_of(self, user: UserProfile, session_pk: int) -> list[tuple[int, int]]:
        """Return the first and last sequence of a session's deleted moments: memory of those turns is unwanted."""
        deleted = self.filter(user_pk=user.pk, session_pk=session_pk, type=MOMENT_DELETED)
        ranges = deleted.filter(payload__has_keys=["first_sequence", "last_sequence"])
        payloads = ranges.values_list("payload", flat=True)
        return [(payload["first_sequence"], payload["last_sequence"]) for payload in payloads]


class Event(models.Model):
    """One event. People and sessions are plain ids, so that an erasure can blank them and keep the log."""

    type = models.CharField(max_length=64)
    actor = models.CharField(max_length=255, help_text="Who did it: key:…, operator:… or job:…")
    application = models.ForeignKey(
        Application,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="Of what names nobody, or nobody any more; blank: the person's, or the site's.",
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
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.created_at:%Y-%m-%d %H:%M}"
