"""A session's messages: turns and partition events, archives of old turns, and rows of archived turns."""

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import connection, connections, models
from django.db.models import Q
from django.db.models.base import ModelState
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.lexemes import VERSION
from sessions_app.models.searched import Searched, SearchedQuerySet
from sessions_app.models.session import Session
from sessions_app.models.user_profile import UserProfile

SequenceRange = tuple[int, int]  # sequence numbers of the first and last turn, inclusive

# Looks up each id with its own subquery. With a join, the planner would read all messages of the person.
_IDS_SQL = """
SELECT (
    SELECT id FROM sessions_app_message
    WHERE session_id = sent.session_id AND user_id = %s AND external_id = sent.external_id
) FROM unnest(%s::bigint[], %s::text[]) AS sent (session_id, external_id)
"""
_AT_PLACE_SQL = """
(SELECT id FROM sessions_app_message
 WHERE session_id = place.session_id AND user_id = %(user)s AND sequence = place.sequence AND kind = '{kind}' LIMIT 1)
"""


def ids_at_places(*kinds: str) -> str:
    """Return SQL for an array of the primary keys of a person's messages at given places (session, sequence).

    A place has at most one message of each kind in `kinds`.
    """
    # Subqueries, because with a join, the planner may read all messages of a kind. No LATERAL, because it doesn't work
    # for distributed messages with row-level security.
    at_place = ", ".join(_AT_PLACE_SQL.format(kind=kind) for kind in kinds)
    places = "unnest(%(sessions)s::bigint[], %(sequences)s::bigint[]) place (session_id, sequence)"
    return f"ARRAY(SELECT COALESCE({at_place}) FROM {places})"  # noqa: S608 (constants)


# SQL for a hash of a row's content, to compare a message with an archived one. The hash has 16 bytes, in hexadecimal.
# PostgreSQL computes it from the stored payload, so the order of the payload's keys doesn't matter. This is raw SQL,
# because the ORM takes longer to build the expression than PostgreSQL takes to archive a person's turns. Column names
# have no table prefix, so use the expression only in queries on a single table.
SAID_HASH_SQL = "md5(md5(content) || COALESCE(payload::text, ''))"
_OF_PAYLOADS_SQL = f"""
SELECT {SAID_HASH_SQL} FROM unnest(%s::text[], %s::text[]::jsonb[]) WITH ORDINALITY AS
    sent (content, payload, position) ORDER BY position
"""  # noqa: S608 (our own expression)

# Retracted messages lose their hash, because it would let an attacker verify guesses of their content.
_KEPT_HASH_SQL = f"""
CASE WHEN external_id IS NOT NULL AND retracted_at IS NULL THEN decode({SAID_HASH_SQL}, 'hex') END
"""


class MessageQuerySet(SearchedQuerySet["Message"]):
    def turns(self) -> Self:
        return self.filter(kind=Message.Kind.TURN)

    def unretracted(self) -> Self:
        """Return the messages that are not retracted. Engines, contexts and searches never receive any others."""
        return self.filter(retracted_at=None)

    def archived(self) -> Self:
        """Return the rows of archived turns. They contain everything except the text."""
        return self.filter(kind=Message.Kind.ARCHIVED)

    def all_turns(self) -> Self:
        """Return all turns, including archived ones."""
        return self.exclude(kind=Message.Kind.PARTITION)

    def all_turns_of(self, session: Session, **sequences: Any) -> Self:
        """Return a session's turns, including archived ones, filtered by sequence number. See `all_turns_where`."""
        return self.filter(session=session, user_id=session.user_id).all_turns_where(**sequences)

    def all_turns_where(self, **sequences: Any) -> Self:
        """Return the turns, including archived ones, filtered by sequence number. Uses the indexes of both kinds."""
        return self.filter(Q(**sequences, kind=Message.Kind.TURN) | Q(**sequences, kind=Message.Kind.ARCHIVED))

    def partitions(self) -> Self:
        return self.filter(kind=Message.Kind.PARTITION)

    def boundaries_of(self, session: Session) -> Self:
        """Return a session's partition events, latest first. The live window starts after the latest."""
        return self.partitions().filter(session=session, user_id=session.user_id).order_by("-sequence", "-id")

    def in_order(self) -> Self:
        """Order messages as in the conversation. A partition event follows the turn with the same sequence number."""
        return self.order_by("sequence", "-kind", "id")

    def with_external_ids(self, user_id: int, names: Collection[tuple[int, str]]) -> Self:
        """Return a person's messages with these ids, which are pairs (session's primary key, `external_id`)."""
        if not names:
            return self.none()
        columns = [list(column) for column in zip(*names, strict=True)]
        with connections[self.db].cursor() as cursor:
            cursor.execute(_IDS_SQL, [user_id, *columns])
            ids = [pk for (pk,) in cursor.fetchall() if pk]
        return self.filter(user_id=user_id, pk__in=ids) if ids else self.none()

    def archive(self) -> int:
        """Mark these turns as archived, and remove their texts. Words and vectors stay. Return the number of turns."""
        return self.update(
            kind=Message.Kind.ARCHIVED,
            content="",
            payload=None,
            metadata={},
            said_hash=RawSQL(_KEPT_HASH_SQL, [], models.BinaryField()),  # noqa: S611 (of our own columns)
            search_version=VERSION,  # prevents reindexing, which would remove the words
        )

    def delete_unread(self) -> int:
        """Delete these rows and their dependents without reading them. Return the number of messages."""
        for relation in Message._meta.related_objects:
            # There are no other kinds of relations. If there were, the database would refuse to delete the rows.
            if isinstance(relation, models.ManyToOneRel) and relation.on_delete is models.CASCADE:
                dependents = relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": self})
                dependents.delete()
        return self._raw_delete(self.db)


class Message(Searched):
    """A turn or a partition event. Turns have the sequence numbers 0, 1, 2, …

    A partition event has the sequence number of the turn before it.

    The row of an archived turn stays, for searches and for references from memory. Its text, payload and metadata are
    only in its archive, where pages read them. Loads, builds and counts of turns don't include archived turns.
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
    name = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="Name of the speaker in a session with several people or agents.",
    )
    content = models.TextField(blank=True)
    payload = models.JSONField(
        null=True, blank=True, help_text="Structured content, such as tool calls and tool results."
    )
    tokens = models.PositiveIntegerField(default=0, help_text="Estimated number of tokens.")
    external_id = models.CharField(  # noqa: DJ001 (unique where it is set)
        max_length=255,
        null=True,
        blank=True,
        help_text="The client's own id for the message. Blank if the client gave none.",
    )
    moment = models.ForeignKey(
        "moments_app.Moment", null=True, blank=True, on_delete=models.SET_NULL, related_name="messages", db_index=False
    )
    retracted_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the turn was retracted. A retracted turn stays in the transcript, but is no longer "
        "sent to engines or included in contexts.",
    )
    created_at = models.DateTimeField(
        default=timezone.now, help_text="When the message was sent, according to the client."
    )
    arrived_at = models.DateTimeField(
        default=timezone.now,
        db_default=Now(),
        help_text="When the platform received the message. The retention period starts at this time.",
    )
    metadata = models.JSONField(default=dict, blank=True)
    said_hash = models.BinaryField(
        null=True,
        editable=False,
        help_text="Hash of the content of an archived turn that has an external_id. The platform uses the hash to "
        "recognize a message that a client sends again.",
    )

    notes: dict[str, Any]  # the results of receivers of `messages_received`; not a column

    SEARCHED = ("name", "content")
    DERIVED = ("said_hash",)

    objects = MessageQuerySet.as_manager()

    class Meta:
        constraints = [
            # A backward scan of this index finds "the last N turns". A backward scan of `message_partitions` finds "the
            # latest boundary".
            models.UniqueConstraint(
                fields=["session", "user", "sequence"], condition=Q(kind="turn"), name="message_turn_sequence_unique"
            ),
            # This constraint has no condition on the id, because its index is used to find all rows of a deleted
            # session.
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
            # Uses a few kB, and hardly slows down appends. To count the messages of a day, PostgreSQL reads only the
            # pages with messages of this day.
            BrinIndex(fields=["arrived_at"], autosummarize=True, name="message_arrived"),
            models.Index(fields=["user", "id"], condition=Q(search_version__lt=VERSION), name="message_unindexed"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"

    @classmethod
    def turn(cls, session: Session, **fields: Any) -> "Message":
        """Return a new turn of a session. Fields with a constant default may be omitted."""
        # Five times as fast as calling the class, which computes each default. An import creates millions of turns.
        turn = cls.__new__(cls)
        turn._state = ModelState()
        turn.__dict__.update(_constant_defaults(), session_id=session.pk, user_id=session.user_id, **fields)
        turn._state.fields_cache["session"] = session
        return turn

    @property
    def spoken(self) -> str:
        """The text with the speaker's name before it, as memory receives it."""
        return spoken(self.name, self.content)

    @classmethod
    def moment_table(cls) -> str:
        """Return the name of the table that `moment` refers to, for raw SQL. The memory app defines it."""
        moment = cls._meta.get_field("moment").related_model
        assert isinstance(moment, type)
        return moment._meta.db_table


@cache
def _constant_defaults() -> dict[str, Any]:
    fields = Message._meta.concrete_fields
    return {
        field.attname: field.get_default() for field in fields if not (field.has_default() and callable(field.default))
    }


def spoken(name: str, content: str) -> str:
    """Return a text with its speaker's name before it, unless the text already starts with the name."""
    return f"{name}: {content}" if name and content and not content.startswith(f"{name}:") else content


def said_hashes(said: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the hashes of pairs of content and payload. Uses one query if there are payloads."""
    with_payload = [position for position, (_content, payload) in enumerate(said) if payload is not None]
    hashes = [_md5(_md5(content)) for content, _payload in said]
    if with_payload:
        columns = [said[n][0] for n in with_payload], [json.dumps(said[n][1]) for n in with_payload]
        with connection.cursor() as cursor:
            cursor.execute(_OF_PAYLOADS_SQL, columns)
            for position, (of_both,) in zip(with_payload, cursor.fetchall(), strict=True):
                hashes[position] = of_both
    return hashes


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


class Archive(models.Model):
    """The archived turns of one session and month: a span of a gzipped file with JSON lines in the storage `archive`.

    The file may contain other sessions of the same person. Earlier versions wrote a file per month and session.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="archives", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="archives")
    month = models.DateField(help_text="First day of the month in which the turns were sent (UTC).")
    name = models.CharField(max_length=255, help_text="Name of the file in the archive storage.")
    byte_offset = models.BigIntegerField(
        default=0, db_default=0, help_text="Byte position at which the turns start in the file."
    )
    first_sequence = models.BigIntegerField()
    last_sequence = models.BigIntegerField()
    turn_count = models.PositiveBigIntegerField()
    byte_count = models.PositiveBigIntegerField(help_text="Size of the turns in the file, in bytes.")
    sha256 = models.CharField(max_length=64, help_text="SHA-256 hash of the turns as stored in the file.")
    block_sequences = ArrayField(
        models.BigIntegerField(),
        default=list,
        help_text="Sequence number of the first turn in each block. A block is a part of the file that can "
        "be read separately.",
    )
    block_offsets = ArrayField(
        models.BigIntegerField(),
        default=list,
        help_text="Byte position of each block, counted from the start of the first block.",
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "month"], name="archive_one_a_month")]

    def __str__(self) -> str:
        return self.name
