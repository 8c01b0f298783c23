"""A line of a person's profile: what it says, what it was made of, and from when until when it stood there.

The profile's text is made of the lines that stand. A line that is changed or ended stays as a row: by whom, when and
why, and what took its place.
"""

import uuid
from datetime import datetime
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.models import UserProfile


class ProfileLineQuerySet(models.QuerySet["ProfileLine"]):
    def standing(self) -> Self:
        """Return those that the profile says now."""
        return self.filter(ended_at=None)

    def as_of(self, time: datetime | None) -> Self:
        """Return those that the profile said at a time; None: that it says now."""
        if time is None:
            return self.standing()
        return self.filter(Q(ended_at=None) | Q(ended_at__gt=time), created_at__lte=time)

    def in_order(self) -> Self:
        """Order as they stand in the profile."""
        return self.order_by("position", "pk")


class ProfileLine(models.Model):
    """One line; see the module's text."""

    class Reason(models.TextChoices):
        CHANGED = "changed", "changed into another line"
        ENDED = "ended", "holds no more"
        BY_HAND = "by hand", "a person took it out"

    line_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="profile_lines", db_index=False)
    heading = models.TextField(blank=True)
    text = models.TextField()
    joint = models.TextField(default="\n", help_text="What parts it from the line before.")
    position = models.PositiveIntegerField(default=0, help_text="Its place in the profile.")
    source_message_ids = ArrayField(
        models.BigIntegerField(), default=list, blank=True, help_text="The turns it was made of; blank: not known."
    )
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="profile_lines")
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    engine = models.CharField(max_length=255, blank=True)
    actor = models.CharField(max_length=255, blank=True, help_text="Who wrote it: key:…, operator:… or job:…")
    is_pinned = models.BooleanField("pinned", default=False, help_text="Engines leave it as it is.")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=255, blank=True)
    end_reason = models.CharField(max_length=16, blank=True, choices=Reason)
    replaced_by = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaces")

    objects = ProfileLineQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["user", "position", "id"], condition=models.Q(ended_at=None), name="profile_line_now"),
            models.Index(fields=["user", "-ended_at", "-id"], name="profile_line_ended"),
        ]

    def __str__(self) -> str:
        return self.text[:80]

    @property
    def said(self) -> str:
        """The text without the mark of a list's item."""
        return self.text.removeprefix("- ")
