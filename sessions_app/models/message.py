"""One entry of a session: a turn, what is left of an archived one, or the partition event of a compaction."""

from typing import Self

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.lexemes import VERSION
from sessions_app.models.searched import Searched, SearchedQuerySet, said_fields
from sessions_app.models.session import Session
from sessions_app.models.user_profile import UserProfile


class MessageQuerySet(SearchedQuerySet["Message"]):
    def for_user(self, user: UserProfile | None) -> Self:
        """Only this person's messages."""
        return self.filter(user=user)

    def turns(self) -> Self:
        return self.filter(kind=Message.Kind.TURN)

    def believed(self) -> Self:
        """Those that are not retracted: all that an engine, a context or a search may ever get."""
        return self.filter(retracted_at=None)

    def archived(self) -> Self:
        """What stays of turns whose text is in an archive: all but their text."""
        return self.filter(kind=Message.Kind.ARCHIVED)

    def partitions(self) -> Self:
        return self.filter(kind=Message.Kind.PARTITION)

    def boundaries_of(self, session: Session) -> Self:
        """A session's partition events, latest first: its live window begins after the first of them."""
        return self.partitions().filter(session=session, user_id=session.user_id).order_by("-sequence", "-id")

    def in_order(self) -> Self:
        """Conversation order: by sequence, a partition event right after its turn."""
        return self.order_by("sequence", "-kind", "id")

    def archive(self) -> int:
        """Takes their text, which is in an archive by then, out of these turns; their words and vectors stay.

        Returns:
            How many.
        """
        # The words they have are those of their text, whatever version made them, and stay.
        return self.update(kind=Message.Kind.ARCHIVED, content="", payload=None, metadata={}, search_version=VERSION)

    def delete_unread(self) -> int:
        """Deletes these rows and what hangs on them, as `delete` does, by a statement a table: none is read for it.

        Returns:
            How many.
        """
        for relation in Message._meta.related_objects:
            # Of another kind there is none yet; the database would refuse to let go what still is referred to.
            if isinstance(relation, models.ManyToOneRel) and relation.on_delete is models.CASCADE:
                dependents = relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": self})
                dependents.delete()
        return self._raw_delete(self.db)


class Message(Searched):
    """A turn has its own `sequence`, 0-based and without gaps; a partition event that of the last turn before it.

    An archived turn keeps its row, so that it is still found and what was made of it still names it. Its text, payload
    and metadata are in its archive alone; it is in no load, page, build or count of turns.
    """

    class Kind(models.TextChoices):
        TURN = "turn"
        PARTITION = "partition"
        ARCHIVED = "archived"

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"
        TOOL = "tool"
        SYSTEM = "system"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="messages", db_index=False)
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.TURN)
    role = models.CharField(max_length=16, choices=Role)
    tool_name = models.CharField(max_length=255, blank=True)
    content = models.TextField(blank=True)
    payload = models.JSONField(null=True, blank=True, help_text="Structured content: tool calls, tool results.")
    tokens = models.PositiveIntegerField(default=0, help_text="Estimated when appended.")
    external_id = models.CharField(  # noqa: DJ001 (unique where it is set)
        max_length=255, null=True, blank=True, help_text="The client's own message id."
    )
    moment = models.ForeignKey(
        "moments_app.Moment", null=True, blank=True, on_delete=models.SET_NULL, related_name="messages", db_index=False
    )
    retracted_at = models.DateTimeField(
        null=True, blank=True, help_text="Kept in the transcript, but no longer believed: no engine or context gets it."
    )
    created_at = models.DateTimeField(default=timezone.now, help_text="When it was said, as the client tells.")
    arrived_at = models.DateTimeField(
        default=timezone.now, db_default=Now(), help_text="When the platform got it: the keep-by date counts from here."
    )
    metadata = models.JSONField(default=dict, blank=True)

    objects = MessageQuerySet.as_manager()

    class Meta:
        constraints = [
            # This and `message_partitions` serve "the last N turns" and "the latest boundary" as well, read backwards.
            # A session has one user; that stands in both because queries and row security filter by it.
            models.UniqueConstraint(
                fields=["session", "user", "sequence"], condition=Q(kind="turn"), name="message_turn_sequence_unique"
            ),
            # Of all messages, with an id or without: what finds the rows of a session that is deleted.
            models.UniqueConstraint(fields=["session", "external_id"], name="message_external_id_unique"),
            models.CheckConstraint(condition=Q(sequence__gte=0), name="message_sequence_from_zero"),
            models.CheckConstraint(
                condition=~Q(kind="partition") | Q(role__in=["tool", "system"]), name="message_boundary_is_no_speech"
            ),
        ]
        indexes = [
            models.Index(fields=["user", "-created_at", "-id"], name="message_user_newest"),
            models.Index(
                fields=["session", "user", "sequence", "id"], condition=Q(kind="partition"), name="message_partitions"
            ),
            models.Index(fields=["session", "user", "sequence"], condition=Q(kind="archived"), name="message_archived"),
            models.Index(fields=["moment"], condition=Q(moment__isnull=False), name="message_moment"),
            # A few kB, and next to nothing for an append: counts by day read what is of these days alone.
            BrinIndex(fields=["created_at"], autosummarize=True, name="message_created"),
            models.Index(fields=["user", "id"], condition=Q(search_version__lt=VERSION), name="message_unindexed"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"

    @classmethod
    def columns(cls, table: str) -> str:
        """What statements by hand select to make messages of, as SQL: `*` would bring `search_vector` along."""
        return ", ".join(f"{table}.{field.column}" for field in said_fields(cls))
