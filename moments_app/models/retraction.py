"""Retractions: withdrawn turns or directly written items, and the rows that were derived from them.

A withdrawn row leaves its table and is stored here as data. So readers don't have to filter it out, and undoing the
retraction restores it unchanged. A row that only names withdrawn data stays in its table and is rewritten; its former
values are stored here too.
"""

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Self

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.core import serializers
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.utils import timezone

from moments_app.models.job import title_of
from moments_app.models.stream import MemoryStream
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.models.message import MessageQuerySet
from sessions_app.models.searched import said_fields
from sessions_app.models.user_profile import OfPersonQuerySet
from sessions_app.refusals import Refusal

# Columns that identify a row of any table to a person. The first one with a text is used.
TELLING = (
    *("name", "content", "text", "content_after", "consolidated_content", "summary", "question"),
    *("session_id", "user_id", "stream_type"),
)

BY_RETRACTION = "retraction:"  # prefix of `requested_by` when a retraction is the cause


class CannotPutBack(Refusal):
    """A withdrawn row refers to a deleted one. The message says which."""

    code = "cannot_put_back"


class ExactEncoder(DjangoJSONEncoder):
    """Writes times with microseconds, so that a row can be restored exactly."""

    def default(self, o: Any) -> Any:
        return o.isoformat() if isinstance(o, datetime) else super().default(o)


class RetractionQuerySet(OfPersonQuerySet["Retraction"]):
    def of_shard(self, stream: MemoryStream) -> Self:
        """Return the retractions of a shard's shared items."""
        return self.filter(stream=stream, user=None)

    def standing(self) -> Self:
        """Return retractions that were not undone."""
        return self.filter(undone_at=None)

    def newest_first(self) -> Self:
        return self.order_by("-id")


class Retraction(models.Model):
    """A retraction of some or all turns of a session, or of items without source turns."""

    retraction_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="retractions"
    )  # blank: of a shard's shared items
    stream = models.ForeignKey(
        MemoryStream,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="retractions",
        verbose_name="shard",
        help_text="The shard that contained the retracted items. Blank if the retracted items belonged to a person.",
    )
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.SET_NULL, related_name="retractions")
    sequences = ArrayField(
        models.BigIntegerField(),
        null=True,
        blank=True,
        help_text="Sequence numbers of the retracted turns. Blank if the whole session was retracted.",
    )
    item_ids = ArrayField(
        models.UUIDField(),
        null=True,
        blank=True,
        help_text="Ids of the retracted items that a client or operator had written directly: facts and observations. "
        "Blank if turns were retracted.",
    )
    entity_ids = ArrayField(
        models.UUIDField(),
        null=True,
        blank=True,
        help_text="Ids of the retracted tasks, goals and problems. Blank if turns were retracted.",
    )
    reason = models.TextField()
    requested_by = models.CharField(max_length=255)
    result = models.JSONField(
        default=dict, help_text="Number of retracted turns, and number of withdrawn rows of each kind."
    )
    waiting = models.JSONField(
        default=dict,
        help_text="Parameters of the rebuild jobs that had not finished at the time of the retraction, grouped by "
        "process.",
    )
    created_at = models.DateTimeField(
        default=timezone.now,
        help_text="Time of the retraction. Also stored in the field `retracted_at` of each retracted turn.",
    )
    undone_at = models.DateTimeField(null=True, blank=True)

    objects = RetractionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=True) ^ Q(stream__isnull=True), name="retraction_of_person_or_shard"
            )
        ]

    def __str__(self) -> str:
        return f"retraction of {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def actor(self) -> str:
        """The name under which its follow-up jobs are queued."""
        return f"{BY_RETRACTION}{self.retraction_id}"

    def consequences(self) -> RetractionQuerySet:
        """Return the retractions of answers in other sessions that repeated the retracted text."""
        return Retraction.objects.for_user(self.user).filter(requested_by=self.actor)

    @property
    def cause_id(self) -> str:
        """The id of the retraction that this is a consequence of; blank for none."""
        return self.requested_by.removeprefix(BY_RETRACTION) if self.requested_by.startswith(BY_RETRACTION) else ""

    @property
    def is_left(self) -> bool:
        """True if its cause was undone without it."""
        return bool(self.cause_id) and not Retraction.objects.standing().filter(retraction_id=self.cause_id).exists()

    @property
    def may_be_undone(self) -> bool:
        """False if it was undone already, or can only be undone together with its cause."""
        return self.undone_at is None and (not self.cause_id or self.is_left)

    def turns(self) -> MessageQuerySet:
        """Return the retracted turns, except archived ones."""
        return Message.objects.turns().filter(session=self.session, retracted_at=self.created_at)

    def archived_turns(self) -> MessageQuerySet:
        """Return the retracted turns that were archived since."""
        return Message.objects.archived().filter(session=self.session, retracted_at=self.created_at)


class RetractedItemQuerySet(models.QuerySet["RetractedItem"]):
    def of(self, model: type[models.Model]) -> Self:
        """Return the rows of one table."""
        return self.filter(model=model._meta.label_lower)

    def withdrawn(self, model: type[models.Model]) -> Self:
        """Return rows that were removed from a table."""
        return self.of(model).filter(is_rewritten=False)

    def rewritten(self, model: type[models.Model]) -> Self:
        """Return rows that stayed in a table, with the values from before they were rewritten."""
        return self.of(model).filter(is_rewritten=True)

    def ids(self) -> list[int]:
        """Return the primary keys of the rows."""
        return list(self.values_list("object_pk", flat=True))

    def keep(self, retraction: Retraction, rows: Iterable[models.Model], *, is_rewritten: bool = False) -> None:
        """Store the current state of rows before they are withdrawn or rewritten."""
        self.bulk_create(
            RetractedItem(
                retraction=retraction,
                user_id=retraction.user_id,
                model=data["model"],
                object_pk=data["pk"],
                data=data["fields"],
                is_rewritten=is_rewritten,
            )
            for row in rows
            for data in serializers.serialize("python", [row], fields=_stored(row))
        )

    def put_back(self, *tables: type[models.Model]) -> int:
        """Restore rows table by table. A rewritten row that was deleted since is not restored.

        Returns:
            The number of restored rows.
        """
        return sum(_put_back(table, list(self.of(table).order_by("object_pk"))) for table in tables)


class RetractedItem(models.Model):
    """A row that was withdrawn or rewritten, in its former state."""

    retraction = models.ForeignKey(Retraction, on_delete=models.CASCADE, related_name="items")
    user = models.ForeignKey(
        UserProfile,
        null=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The person to whom the row belongs. Blank if the row belongs to a shard.",
    )
    model = models.CharField(max_length=64, help_text="The Django model of the row, such as moments_app.moment.")
    object_pk = models.BigIntegerField()
    is_rewritten = models.BooleanField(
        default=False,
        help_text="True if the row was rewritten without the withdrawn parts. False if the row was removed.",
    )
    data = models.JSONField(encoder=ExactEncoder)

    objects = RetractedItemQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["retraction", "model", "object_pk"], name="retracted_item_once")]

    def __str__(self) -> str:
        return f"{self.table._meta.verbose_name} {self.object_pk}"

    @property
    def table(self) -> type[models.Model]:
        """The table whose row it is."""
        return apps.get_model(self.model)

    @property
    def label(self) -> str:
        """A line that identifies the row to a person: its text if it has one."""
        if self.data.get("kind") == Message.Kind.PARTITION:  # its text is written for models
            return f"Boundary after turn {self.data['sequence']}"
        if process := self.data.get("process"):
            return title_of(process)
        if action := self.data.get("action"):  # a change of a fact
            return str(action).replace("_", " ").capitalize()
        if self.model == Event._meta.label_lower:
            return str(self.data["type"]).replace("_", " ")
        said = (self.data.get(name) for name in TELLING)
        return next((text for text in said if isinstance(text, str) and text), str(self))

    def row(self) -> serializers.base.DeserializedObject:
        """Return the former row as an unsaved `object`, without columns that its table no longer has."""
        kept = {"model": self.model, "pk": self.object_pk, "fields": self.data}
        return next(serializers.deserialize("python", [kept], ignorenonexistent=True))

    def address(self) -> str:
        """Return the `rem://` address of the former row. Its columns are used as they are stored."""
        row: Any = self.table()
        for column in row._meta.concrete_fields:
            if column.name in self.data:
                setattr(row, column.attname, self.data[column.name])
        return str(row.uri)


def _stored(row: models.Model) -> list[str]:
    return [field.name for field in said_fields(type(row))]


def _put_back(table: type[models.Model], items: Sequence[RetractedItem]) -> int:
    there = set(table._base_manager.filter(pk__in=[item.object_pk for item in items]).values_list("pk", flat=True))
    wanted = [item for item in items if item.is_rewritten == (item.object_pk in there)]
    for field in table._meta.concrete_fields:
        if isinstance(field, models.ForeignKey):
            _forget_lost(field, wanted, there={item.object_pk for item in wanted})
    kept = [field.name for field in table._meta.concrete_fields if not field.primary_key and field.name != "user"]
    for item in wanted:
        if item.is_rewritten:  # the owner never changes, and distributed tables don't allow updating it
            item.row().save(update_fields=kept)
        else:
            item.row().save(force_insert=True)
    return len(wanted)


def _forget_lost(field: models.ForeignKey[Any, Any], items: Sequence[RetractedItem], *, there: set[int]) -> None:
    """Blank references to deleted rows if the column may be blank.

    Raises:
        CannotPutBack: it may not be blank.
    """
    table: type[models.Model] = field.related_model
    wanted = {item.data[field.name] for item in items} - {None}
    wanted -= there if table is field.model else set()
    lost = wanted - set(table._base_manager.filter(pk__in=wanted).values_list("pk", flat=True))
    for item in items:
        if item.data[field.name] in lost:
            if not field.null:
                kind, its = table._meta.verbose_name, field.model._meta.verbose_name
                raise CannotPutBack(f"The {kind} of a retracted {its} was deleted.")
            item.data[field.name] = None
