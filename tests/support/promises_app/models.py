"""The table."""

import uuid
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models

from moments_app.models import Job
from sessions_app.models import Session, UserProfile


class PromiseQuerySet(models.QuerySet["Promise"]):
    def for_user(self, user: UserProfile | None) -> Self:
        """Return a person's promises."""
        return self.filter(user=user)


class Promise(models.Model):
    """Something that a person has promised, in the words of a turn."""

    promise_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    source_session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    source_message_ids = ArrayField(models.BigIntegerField())
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = PromiseQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "text"], name="promise_once")]

    def __str__(self) -> str:
        return self.text

    @property
    def uri(self) -> str:
        """Its address in contexts."""
        return f"rem://promises/{self.promise_id}"
