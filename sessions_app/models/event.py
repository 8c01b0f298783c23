"""The append-only log of what happened."""

from django.db import models


class Event(models.Model):
    """One thing that happened. People and sessions are plain ids, so that erasure can blank them and keep the log."""

    type = models.CharField(max_length=64)
    actor = models.CharField(max_length=255, help_text="Who did it: key:…, operator:… or job:…")
    user_pk = models.BigIntegerField(null=True, blank=True)
    session_pk = models.BigIntegerField(null=True, blank=True)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="event_newest"),
            models.Index(fields=["user_pk", "-id"], name="event_user"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.created_at:%Y-%m-%d %H:%M}"
