"""Moments are records of episodes, each linked to the previous ones. Drafts are episodes not yet published by a build.

A person's moments are always ordered by their end, then by their turns, then by id. So the order in which they were
built, imported or rebuilt doesn't matter.
"""

from collections.abc import Collection, Iterable
from copy import copy
from datetime import datetime
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex, GinIndex
from django.db import connection, models, transaction
from django.db.models import F, OuterRef, Q, Subquery
from django.utils.text import slugify

from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.lexemes import VERSION
from sessions_app.models import Session, UserProfile
from sessions_app.models.searched import Searched, SearchedQuerySet

KEY_MAX_LENGTH = 120
PREDECESSORS = 3
LATEST_MOMENTS = 5  # maximum number of latest moments in a context or a partition event
CHAIN_ORDER = ("-ends_at", "-first_sequence", "-id")

# One recursive query by (user, key). Its cost depends on the length of the page, not on the number of moments.
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
# Relinks the moments at and right after each place where one was added or removed. No other moments are affected. Both
# walks are bounded reads of the index `moment_user_in_time`, so the cost depends only on the number of places.
RELINK_SQL = f"""
WITH touched AS (
    SELECT DISTINCT near.id
    FROM unnest(%(ends)s::timestamptz[], %(sequences)s::bigint[], %(ids)s::bigint[]) AS place (ends_at, sequence, id)
    CROSS JOIN LATERAL (
        SELECT m.id FROM moments_app_moment m WHERE m.user_id = %(user)s
          AND (m.ends_at, m.first_sequence, m.id) >= (place.ends_at, place.sequence, place.id)
        ORDER BY m.ends_at, m.first_sequence, m.id LIMIT {PREDECESSORS + 1}
    ) near
), linked AS (
    SELECT m.id, ARRAY(
        SELECT before.key FROM moments_app_moment before WHERE before.user_id = %(user)s
          AND (before.ends_at, before.first_sequence, before.id) < (m.ends_at, m.first_sequence, m.id)
        ORDER BY before.ends_at DESC, before.first_sequence DESC, before.id DESC LIMIT {PREDECESSORS}
    )::text[] AS previous
    FROM touched JOIN moments_app_moment m ON m.id = touched.id
)
UPDATE moments_app_moment m SET previous_moment_keys = linked.previous FROM linked
WHERE m.id = linked.id AND m.previous_moment_keys IS DISTINCT FROM linked.previous
"""  # noqa: S608 (a constant)


class MomentQuerySet(SearchedQuerySet["Moment"]):
    def newest_first(self) -> Self:
        """Order moments as in the chain, by the end of the episode, latest first.

        Don't order by id alone. The planner would assume that a person's rows are spread evenly, and scan the primary
        key backward past all newer rows of other people.
        """
        return self.order_by(*CHAIN_ORDER)

    def earlier_than(self, moment: "Moment") -> Self:
        """Return the moments before this one in the person's chain, nearest first."""
        at_once = Q(first_sequence__lt=moment.first_sequence) | Q(
            first_sequence=moment.first_sequence, pk__lt=moment.pk
        )
        before = Q(ends_at__lt=moment.ends_at) | Q(at_once, ends_at=moment.ends_at)
        # The last condition makes PostgreSQL use the index.
        return self.filter(before, user_id=moment.user_id, ends_at__lte=moment.ends_at).newest_first()

    def later_than(self, moment: "Moment") -> Self:
        """Return the moments after this one in the person's chain, nearest first."""
        at_once = Q(first_sequence__gt=moment.first_sequence) | Q(
            first_sequence=moment.first_sequence, pk__gt=moment.pk
        )
        after = Q(ends_at__gt=moment.ends_at) | Q(at_once, ends_at=moment.ends_at)
        return self.filter(after, user_id=moment.user_id, ends_at__gte=moment.ends_at).newest_first().reverse()

    def with_topic(self, topic: str) -> Self:
        return self.filter(topic_tags__contains=[topic])

    def with_journey_since(self, user_id: int, since: datetime) -> Self:
        """Return a person's moments whose journey may describe events since a time."""
        return self.filter(user_id=user_id, ends_at__gte=since).exclude(journey="")

    def relink(self, user_id: int, places: "Iterable[Moment]") -> None:
        """Repair the links between a person's moments. The caller must have locked the person's row.

        Args:
            user_id: primary key of the person.
            places: the added and removed moments.
        """
        rows = [(place.ends_at, place.first_sequence, place.pk) for place in places]
        if rows:
            ends, sequences, ids = (list(column) for column in zip(*rows, strict=True))
            with connection.cursor() as cursor:
                cursor.execute(RELINK_SQL, {"user": user_id, "ends": ends, "sequences": sequences, "ids": ids})

    def chain_from(self, moment: "Moment", depth: int) -> "list[Moment]":
        """Follow the links from a moment to earlier ones. Return up to `depth` moments, nearest first."""
        return list(self.raw(CHAIN_SQL, {"user": moment.user_id, "key": moment.key, "depth": depth}))


class Episode(models.Model):
    """The fields of an episode that an engine writes. The engine's `DraftMoment` has the same fields."""

    name = models.CharField(max_length=255)
    summary = models.TextField()
    detail = models.TextField(blank=True)
    topic_tags = ArrayField(models.TextField(), default=list, blank=True)
    emotion_tags = ArrayField(models.TextField(), default=list, blank=True)
    present_persons = ArrayField(models.TextField(), default=list, blank=True)

    class Meta:
        abstract = True


EPISODE_FIELDS = tuple(field.name for field in Episode._meta.local_fields)


class Moment(Episode, Searched):
    """An episode of a session: a range of turns, with a name and a summary."""

    SEARCHED = ("name", "summary", "detail")

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="moments", db_index=False)
    source_session = models.ForeignKey(
        Session, null=True, blank=True, on_delete=models.SET_NULL, related_name="moments"
    )
    key = models.SlugField(max_length=KEY_MAX_LENGTH, allow_unicode=True, db_index=False)
    category = models.CharField(max_length=64, default="session-compression")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    first_sequence = models.BigIntegerField()
    last_sequence = models.BigIntegerField()
    previous_moment_keys = ArrayField(models.TextField(), default=list, blank=True, size=PREDECESSORS)
    journey = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="Headlines with dates of the person's latest moments, ending with this moment. Blank unless this is "
        "the last moment of a build.",
    )
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
            models.Index(fields=["user", "-ends_at", "-first_sequence", "-id"], name="moment_user_in_time"),
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
        return f"rem://moments/key/{self.key}"

    @property
    def period(self) -> str:
        """The period as text. If it lies within one day, the date appears only once."""
        end = (
            f"{self.ends_at:%H:%M}"
            if self.starts_at.date() == self.ends_at.date()
            else f"{self.ends_at:%Y-%m-%d %H:%M}"
        )
        return f"{self.starts_at:%Y-%m-%d %H:%M}–{end}"

    @property
    def turn_count(self) -> int:
        return self.last_sequence - self.first_sequence + 1

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        """Delete the moment and close the gap in the chain."""
        with transaction.atomic():
            UserProfile.objects.locked().get(pk=self.user_id)  # lock the person, as every change of the chain does
            former = copy(self)
            deleted = super().delete()
            Moment.objects.relink(self.user_id, [former])
        return deleted


def moment_key(name: str, starts_at: datetime, used_keys: Collection[str]) -> str:
    """Return a key for a new moment, such as `ski-trip-20260303`, or `ski-trip-20260303-2` if that is taken."""
    date = f"{starts_at:%Y%m%d}"
    slug = slugify(name, allow_unicode=True)[: KEY_MAX_LENGTH - len(date) - 8].strip("-") or "moment"
    key, number = f"{slug}-{date}", 1
    while key in used_keys:
        number += 1
        key = f"{slug}-{date}-{number}"
    return key


class EpisodeDraftQuerySet(models.QuerySet["EpisodeDraft"]):
    def for_session(self, session: Session) -> Self:
        """Return a session's drafts for turns not covered by a moment, in order."""
        return self.filter(session=session, last_sequence__gt=session.built_to).order_by("first_sequence")

    def publish(self, sessions: Collection[Session]) -> None:
        """Delete drafts whose turns are now covered by moments. Shorten drafts whose turns are partly covered."""
        own = self.filter(session__in=sessions)
        own.filter(last_sequence__lte=F("session__last_moment_message_idx")).delete()
        built_to = Session.objects.filter(pk=OuterRef("session_id")).values("last_moment_message_idx")
        split = own.filter(first_sequence__lte=F("session__last_moment_message_idx"))
        split.update(first_sequence=Subquery(built_to) + 1)


class EpisodeDraft(Episode):
    """An episode that an engine wrote together with the statements from the same turns.

    A build publishes the draft as a moment, without calling the engine again.
    """

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+", db_index=False)
    first_sequence = models.BigIntegerField()
    last_sequence = models.BigIntegerField()
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
