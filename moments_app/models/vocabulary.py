"""Vocabularies count the texts of a memory that contain each word.

The counts show whether a word of a query is rare, common or a typo. `count_words` recounts when memory has grown by a
tenth, so the counts may be slightly outdated. This doesn't delay searches, which find new texts immediately.
"""

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from moments_app.models.stream import MemoryStream
from sessions_app.models import UserProfile


class VocabularyQuerySet(models.QuerySet["Vocabulary"]):
    def visible_to(self, user: UserProfile, agent_id: str) -> Self:
        """Return the vocabularies of a person, of an agent's shards, and of the shards for all agents."""
        shards = Q(stream__is_active=True, stream__agent_id__in={"", agent_id})
        shards &= Q(stream__application=user.application_id)
        return self.filter(Q(user=user) | Q(user=None) & shards)


class Vocabulary(models.Model):
    """The words in the memory of one person or in one shard, with the number and length of the texts."""

    user = models.OneToOneField(UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="vocabulary")
    stream = models.OneToOneField(
        MemoryStream, null=True, blank=True, on_delete=models.CASCADE, related_name="vocabulary"
    )
    fact_count = models.PositiveBigIntegerField(default=0)
    moment_count = models.PositiveBigIntegerField(default=0)
    turn_count = models.PositiveBigIntegerField(default=0)
    fact_words = models.PositiveBigIntegerField(
        default=0, help_text="Total number of words in all facts. Repetitions within a fact don't count."
    )
    moment_words = models.PositiveBigIntegerField(default=0)
    turn_words = models.PositiveBigIntegerField(default=0)
    counted_at = models.DateTimeField(default=timezone.now)

    objects = VocabularyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "vocabularies"
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=True) ^ Q(stream__isnull=True), name="vocabulary_of_person_or_shard"
            )
        ]

    def __str__(self) -> str:
        return f"Words of {self.user or self.stream}"


class Word(models.Model):
    """One stem, and the number of texts of each kind that contain it."""

    vocabulary = models.ForeignKey(Vocabulary, on_delete=models.CASCADE, related_name="words", db_index=False)
    # Only for row-level security. Words are deleted together with their vocabulary.
    user = models.ForeignKey(
        UserProfile, null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    stem = models.TextField()
    facts = models.PositiveIntegerField(default=0)
    moments = models.PositiveIntegerField(default=0)
    turns = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["vocabulary", "stem"], name="word_unique_in_vocabulary")]

    def __str__(self) -> str:
        return self.stem
