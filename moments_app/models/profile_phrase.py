"""An interest or a topic of a person's profile, with the turns that say it.

The profile has the phrases themselves (`interests`, `preferred_topics`). A row is written when an engine adds one whose
words some turns have; of a phrase without a row, what it was made of isn't known.
"""

import uuid
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from moments_app.models.job import Job
from sessions_app.models import UserProfile


class ProfilePhraseQuerySet(models.QuerySet["ProfilePhrase"]):
    def for_user(self, user: UserProfile) -> Self:
        """Return only this person's phrases."""
        return self.filter(user=user)


class ProfilePhrase(models.Model):
    """One phrase as a build has added it; see the module's text."""

    class Kind(models.TextChoices):
        INTEREST = "interest"
        TOPIC = "topic"

    phrase_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="profile_phrases")
    kind = models.CharField(max_length=16, choices=Kind)
    text = models.TextField()
    source_message_ids = ArrayField(models.BigIntegerField(), help_text="The turns that say it.")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="profile_phrases")
    created_at = models.DateTimeField(default=timezone.now)

    objects = ProfilePhraseQuerySet.as_manager()

    def __str__(self) -> str:
        return self.text[:80]

    @property
    def named(self) -> tuple[str, str]:
        """What it is found by: the profile has it once, however it is written."""
        return self.kind, self.text.casefold()
