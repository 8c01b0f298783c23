"""One remembered episode, linked back to the ones before it."""

from collections.abc import Collection
from datetime import datetime
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex, GinIndex
from django.db import models
from django.utils.text import slugify

from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.lexemes import VERSION
from sessions_app.models import Session, UserProfile
from sessions_app.models.searched import Searched, SearchedQuerySet

KEY_MAX_LENGTH = 120
PREDECESSORS = 3

# One recursive statement over (user, key): a page of the chain costs its length, whatever the number of moments.
CHAIN_SQL = """
WITH RECURSIVE chain AS (
    SELECT m.id, m.user_id, m.previous_moment_keys[1] AS previous, 0 AS distance
    FROM moments_app_moment m WHERE m.user_id = %(user)s AND m.key = %(key)s
    UNION ALL
    SELECT m.id, m.user_id, m.previous_moment_keys[1], chain.distance + 1
    FROM chain JOIN moments_app_moment m ON m.user_id = chain.user_id AND m.key = chain.previous
    WHERE chain.distance < %(depth)s
)
SELECT m.* FROM chain JOIN moments_app_moment m ON m.id = chain.id WHERE chain.distance > 0 ORDER BY chain.distance
"""


class MomentQuerySet(SearchedQuerySet["Moment"]):
    def for_user(self, user: UserProfile | None) -> Self:
        """Only this person's moments."""
        return self.filter(user=user)

    def newest_first(self) -> Self:
        """By time of creation: the order of the chain.

        Not by id alone: the planner would walk the primary key backwards for a person whose moments it takes to be
        spread evenly, over everything that others made since (docs/decisions/0005).
        """
        return self.order_by("-created_at", "-id")

    def earlier_than(self, moment: "Moment") -> Self:
        """Of the same person, before it in the chain, nearest first."""
        own = self.filter(user_id=moment.user_id, created_at__lte=moment.created_at)
        return own.exclude(created_at=moment.created_at, pk__gte=moment.pk).newest_first()

    def later_than(self, moment: "Moment") -> Self:
        """Of the same person, after it in the chain, nearest first."""
        own = self.filter(user_id=moment.user_id, created_at__gte=moment.created_at)
        return own.exclude(created_at=moment.created_at, pk__lte=moment.pk).newest_first().reverse()

    def with_topic(self, topic: str) -> Self:
        return self.filter(topic_tags__contains=[topic])

    def with_emotion(self, emotion: str) -> Self:
        return self.filter(emotion_tags__contains=[emotion])

    def relink(self, user_id: int, *, after: int) -> None:
        """Makes the chain of a person's moments whole again.

        Args:
            user_id: primary key of the person.
            after: primary key of the first that came or went; the ones before it are linked as they were.
        """
        earlier = self.filter(user_id=user_id, pk__lt=after).order_by("-pk").values_list("key", flat=True)
        previous = list(earlier[:PREDECESSORS])
        changed = []
        for moment in self.filter(user_id=user_id, pk__gte=after).only("key", "previous_moment_keys").order_by("pk"):
            if moment.previous_moment_keys != previous:
                moment.previous_moment_keys = previous
                changed.append(moment)
            previous = [moment.key, *previous][:PREDECESSORS]
        self.bulk_update(changed, ["previous_moment_keys"], batch_size=500)

    def chain_from(self, moment: "Moment", depth: int) -> "list[Moment]":
        """The moments of the same user before `moment`, nearest first, at most `depth` of them."""
        return list(self.raw(CHAIN_SQL, {"user": moment.user_id, "key": moment.key, "depth": depth}))


class Moment(Searched):
    """A distinct segment of a session, with the turns it came from."""

    SEARCHED = ("name", "summary", "detail")

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="moments", db_index=False)
    source_session = models.ForeignKey(
        Session, null=True, blank=True, on_delete=models.SET_NULL, related_name="moments"
    )
    key = models.SlugField(max_length=KEY_MAX_LENGTH, allow_unicode=True, db_index=False)
    name = models.CharField(max_length=255)
    category = models.CharField(max_length=64, default="session-compression")
    summary = models.TextField()
    detail = models.TextField(blank=True)
    topic_tags = ArrayField(models.TextField(), default=list, blank=True)
    emotion_tags = ArrayField(models.TextField(), default=list, blank=True)
    present_persons = ArrayField(models.TextField(), default=list, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    first_sequence = models.BigIntegerField()
    last_sequence = models.BigIntegerField()
    previous_moment_keys = ArrayField(models.TextField(), default=list, blank=True, size=PREDECESSORS)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="moments")
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    engine = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = MomentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="moment_key_unique_for_user"),
            models.CheckConstraint(
                condition=models.Q(first_sequence__lte=models.F("last_sequence")), name="moment_range_in_order"
            ),
        ]
        indexes = [
            models.Index(fields=["user", "-created_at", "-id"], name="moment_user_newest"),
            models.Index(fields=["user", "-ends_at", "-id"], name="moment_user_latest"),
            BrinIndex(fields=["created_at"], autosummarize=True, name="moment_created"),
            models.Index(fields=["category", "-id"], name="moment_category_newest"),
            models.Index(fields=["starts_at"], name="moment_starts_at"),
            models.Index(fields=["key"], opclasses=["varchar_pattern_ops"], name="moment_key_prefix"),
            GinIndex(fields=["topic_tags"], name="moment_topics"),
            GinIndex(fields=["emotion_tags"], name="moment_emotions"),
            GinIndex(fields=["search_vector"], name="moment_search"),
            models.Index(
                fields=["user", "id"], condition=models.Q(search_version__lt=VERSION), name="moment_unindexed"
            ),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def uri(self) -> str:
        """Address under which a model can look the moment up."""
        return f"rem://moments/key/{self.key}"

    @property
    def period(self) -> str:
        """When it was, to be read: the day is said once where it is one day."""
        end = (
            f"{self.ends_at:%H:%M}"
            if self.starts_at.date() == self.ends_at.date()
            else f"{self.ends_at:%Y-%m-%d %H:%M}"
        )
        return f"{self.starts_at:%Y-%m-%d %H:%M}–{end}"

    @property
    def turn_count(self) -> int:
        """Turns in its range."""
        return self.last_sequence - self.first_sequence + 1

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        """Deletes the moment and closes the chain over the gap."""
        user_id, pk = self.user_id, self.pk
        deleted = super().delete()
        Moment.objects.relink(user_id, after=pk)
        return deleted


def moment_key(name: str, starts_at: datetime, taken: Collection[str]) -> str:
    """A key for a new moment: `{name}-{yyyymmdd}`, then `-2`, `-3`, … while that is `taken`."""
    date = f"{starts_at:%Y%m%d}"
    slug = slugify(name, allow_unicode=True)[: KEY_MAX_LENGTH - len(date) - 8].strip("-") or "moment"
    key, number = f"{slug}-{date}", 1
    while key in taken:
        number += 1
        key = f"{slug}-{date}-{number}"
    return key
