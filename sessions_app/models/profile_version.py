"""Earlier versions of profiles."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from sessions_app.models.user_profile import UserProfile


class ProfileVersion(models.Model):
    """A profile as it was before a change by `actor`. Retractions restore it, and operators read it."""

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="versions", db_index=False)
    summary = models.TextField(blank=True)
    interests = ArrayField(models.TextField(), default=list, blank=True)
    preferred_topics = ArrayField(models.TextField(), default=list, blank=True)
    actor = models.CharField(max_length=255, help_text="Who changed it then: key:…, operator:… or job:…")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["user", "-id"], name="profile_version_newest")]

    def __str__(self) -> str:
        return f"{self.user} before {self.created_at:%Y-%m-%d %H:%M}"
