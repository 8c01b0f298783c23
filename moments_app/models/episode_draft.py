"""Episodes that a formation has drafted and that no build has published as moments yet."""

from collections.abc import Collection
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, OuterRef, Q, Subquery

from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.models import Session, UserProfile


class EpisodeDraftQuerySet(models.QuerySet["EpisodeDraft"]):
    def of(self, session: Session) -> Self:
        """Return a session's drafts of turns that no moment holds, in order."""
        return self.filter(session=session, last_sequence__gt=session.built_to).order_by("first_sequence")

    def publish(self, sessions: Collection[Session]) -> None:
        """Delete drafts whose turns now have moments. Shorten a draft that reaches beyond the last moment."""
        own = self.filter(session__in=sessions)
        own.filter(last_sequence__lte=F("session__last_moment_message_idx")).delete()
        built_to = Session.objects.filter(pk=OuterRef("session_id")).values("last_moment_message_idx")
        split = own.filter(first_sequence__lte=F("session__last_moment_message_idx"))
        split.update(first_sequence=Subquery(built_to) + 1)


class EpisodeDraft(models.Model):
    """An episode of a session that an engine wrote together with the statements of the same turns.

    A build publishes it as a moment without another call. If it is deleted, the build calls the engine for its turns.
    """

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+", db_index=False)
    first_sequence = models.BigIntegerField()
    last_sequence = models.BigIntegerField()
    name = models.CharField(max_length=255)
    summary = models.TextField()
    detail = models.TextField(blank=True)
    topic_tags = ArrayField(models.TextField(), default=list, blank=True)
    emotion_tags = ArrayField(models.TextField(), default=list, blank=True)
    present_persons = ArrayField(models.TextField(), default=list, blank=True)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    prompt_version = models.ForeignKey(
        PromptVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    engine = models.CharField(max_length=255)

    objects = EpisodeDraftQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "first_sequence"], name="episode_draft_unique"),
            models.CheckConstraint(
                condition=Q(first_sequence__lte=F("last_sequence")), name="episode_draft_range_in_order"
            ),
        ]

    def __str__(self) -> str:
        return self.name
