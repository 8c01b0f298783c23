"""A retraction withdraws turns or directly written items, and the rows derived from them.

A withdrawn row is moved from its table to the table of retracted items, as JSON. So queries don't have to filter it
out, and undoing the retraction restores it unchanged. A row that only refers to withdrawn data stays in its table and
is rewritten. Its former values are stored in the same way.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Self

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.core import serializers
from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, models
from django.db.models import Q
from django.utils import timezone
from psycopg.errors import UniqueViolation

from moments_app.models.job import title_of
from moments_app.models.stream import MemoryStream
from sessions_app.database.sql import insert_missing_raw
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.models.message import MessageQuerySet
from sessions_app.models.searched import source_fields
from sessions_app.models.user_profile import OfPersonQuerySet
from sessions_app.refusals import Refusal

# Columns that identify a row to a person. The first one that is not blank is used.
LABEL_COLUMNS = (
    *("name", "content", "text", "content_after", "consolidated_content", "summary", "question"),
    *("session_id", "user_id", "stream_type"),
)

BY_RETRACTION = "retraction:"  # prefix of `requested_by` if another retraction is the requester


class CannotRestoreRows(Refusal):
    """A withdrawn row refers to a deleted one. The message says which."""

    code = "cannot_put_back"


class ExactEncoder(DjangoJSONEncoder):
    """Encodes times with microseconds, so that rows are restored exactly."""

    def default(self, o: Any) -> Any:
        return o.isoformat() if isinstance(o, datetime) else super().default(o)


class RetractionQuerySet(OfPersonQuerySet["Retraction"]):
    def of_shard(self, stream: MemoryStream) -> Self:
        return self.filter(stream=stream, user=None)

    def in_effect(self) -> Self:
        return self.filter(undone_at=None)

    def newest_first(self) -> Self:
        return self.order_by("-id")


class Retraction(models.Model):
    """A retraction of some or all turns of a session, or of items without source turns."""

    retraction_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="retractions"
    )  # blank for a retraction of a shard's shared items
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
        """The requester of the retraction's follow-up jobs."""
        return f"{BY_RETRACTION}{self.retraction_id}"

    def consequences(self) -> RetractionQuerySet:
        """Return the retractions of answers in other sessions that repeated the retracted text."""
        return Retraction.objects.for_user(self.user).filter(requested_by=self.actor)

    @property
    def cause_id(self) -> str:
        """The id of the retraction that caused this one; blank if this one has no such cause."""
        return self.requested_by.removeprefix(BY_RETRACTION) if self.requested_by.startswith(BY_RETRACTION) else ""

    @property
    def is_orphaned(self) -> bool:
        """True if the retraction that caused this one is no longer in effect."""
        return bool(self.cause_id) and not Retraction.objects.in_effect().filter(retraction_id=self.cause_id).exists()

    @property
    def may_be_undone(self) -> bool:
        return self.undone_at is None and (not self.cause_id or self.is_orphaned)

    def turns(self) -> MessageQuerySet:
        """Return the retracted turns, except archived ones."""
        own = Message.objects.turns().filter(user_id=self.user_id, session=self.session)
        return own.filter(retracted_at=self.created_at)

    def archived_turns(self) -> MessageQuerySet:
        own = Message.objects.archived().filter(user_id=self.user_id, session=self.session)
        return own.filter(retracted_at=self.created_at)


class RetractedItemQuerySet(models.QuerySet["RetractedItem"]):
    def for_model(self, model: type[models.Model]) -> Self:
        return self.filter(model=model._meta.label_lower)

    def withdrawn(self, model: type[models.Model]) -> Self:
        return self.for_model(model).filter(is_rewritten=False)

    def rewritten(self, model: type[models.Model]) -> Self:
        """Return the former values of rows that were rewritten instead of removed."""
        return self.for_model(model).filter(is_rewritten=True)

    def ids(self) -> list[int]:
        return list(self.values_list("object_pk", flat=True))

    def store(self, retraction: Retraction, rows: Iterable[models.Model], *, is_rewritten: bool = False) -> None:
        """Store the current state of rows, before they are withdrawn or rewritten."""
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

    def restore(self, *tables: type[models.Model]) -> int:
        """Restore the rows of these tables, in the given order of tables. Return the number of rows.

        A rewritten row that was deleted in the meantime is not restored.
        """
        return sum(_restore(table, list(self.for_model(table).order_by("object_pk"))) for table in tables)

    def restore_missing(self, table: type[models.Model]) -> None:
        """Restore removed rows, except rows replaced by newer ones and rows whose source was deleted."""
        items = list(self.withdrawn(table).order_by("object_pk"))
        for field in _references(table):
            missing = _missing(field, items)
            items = [item for item in items if field.null or item.data[field.name] not in missing]
            _clear(field, items, missing)
        insert_missing_raw([item.row().object for item in items])


class RetractedItem(models.Model):
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
        return apps.get_model(self.model)

    @property
    def label(self) -> str:
        if self.data.get("kind") == Message.Kind.PARTITION:  # the text of a partition event is for models
            return f"Boundary after turn {self.data['sequence']}"
        if process := self.data.get("process"):
            return title_of(process)
        if action := self.data.get("action"):  # the row is a change of a statement
            return str(action).replace("_", " ").capitalize()
        if self.model == Event._meta.label_lower:
            return str(self.data["type"]).replace("_", " ")
        texts = (self.data.get(name) for name in LABEL_COLUMNS)
        return next((text for text in texts if isinstance(text, str) and text), str(self))

    def row(self) -> serializers.base.DeserializedObject:
        """Return the deserialized row. Its `object` is unsaved, and omits columns that the table no longer has."""
        kept = {"model": self.model, "pk": self.object_pk, "fields": self.data}
        return next(serializers.deserialize("python", [kept], ignorenonexistent=True))

    def addresses(self) -> Collection[str]:
        """Return the addresses of the row in contexts."""
        row: Any = self.table()
        for column in row._meta.concrete_fields:
            if column.name in self.data:
                setattr(row, column.attname, self.data[column.name])
        return getattr(row, "uris", {row.uri})


def _stored(row: models.Model) -> list[str]:
    return [field.name for field in source_fields(type(row))]


def _restore(table: type[models.Model], items: Sequence[RetractedItem]) -> int:
    present = set(table._base_manager.filter(pk__in=[item.object_pk for item in items]).values_list("pk", flat=True))
    wanted = [item for item in items if item.is_rewritten == (item.object_pk in present)]
    for field in _references(table):
        missing = _missing(field, wanted)
        if missing and not field.null:
            kind, its = field.related_model._meta.verbose_name, table._meta.verbose_name
            raise CannotRestoreRows(f"The {kind} of a retracted {its} was deleted.")
        _clear(field, wanted, missing)
    kept = [field.name for field in table._meta.concrete_fields if not field.primary_key and field.name != "user"]
    for item in wanted:
        if item.is_rewritten:  # omit the owner, which never changes and can't be updated in distributed tables
            item.row().save(update_fields=kept)
            continue
        try:
            item.row().save(force_insert=True)
        except IntegrityError as error:  # a newer row has the same unique value; the caller rolls back
            if not isinstance(error.__cause__, UniqueViolation):
                raise
            name = table._meta.verbose_name
            message = f"A newer {name} has replaced a retracted {name}. Delete the newer one first."
            raise CannotRestoreRows(message) from None
    return len(wanted)


def _references(table: type[models.Model]) -> Iterator[models.ForeignKey[Any, Any]]:
    return (field for field in table._meta.concrete_fields if isinstance(field, models.ForeignKey))


def _missing(field: models.ForeignKey[Any, Any], items: Sequence[RetractedItem]) -> set[Any]:
    """Return the primary keys of deleted rows referenced by these items."""
    table: type[models.Model] = field.related_model
    named = {item.data[field.name] for item in items} - {None}
    if table is field.model:
        named -= {item.object_pk for item in items}
    return named - set(table._base_manager.filter(pk__in=named).values_list("pk", flat=True))


def _clear(field: models.ForeignKey[Any, Any], items: Sequence[RetractedItem], missing: set[Any]) -> None:
    for item in items:
        if item.data[field.name] in missing:
            item.data[field.name] = None
