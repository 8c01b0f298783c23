"""Tasks, goals and problems of a person, and the links between them."""

import uuid
from datetime import datetime
from typing import Any, ClassVar, Self, cast

from django.db import models
from django.db.models import F, Q

from moments_app.models.atom import CHANGED, DROPPED, ENTITIES, ENTITY_KINDS, MemoryAtom, MemoryAtomQuerySet, id_hash
from moments_app.models.stream import MemoryStream
from sessions_app.models import UserProfile

_OPEN = (MemoryAtom.State.ACTIVE, MemoryAtom.State.ABSORBED)
_SHOWN = (*_OPEN, MemoryAtom.State.ENDED)
# The condition for statements that are open entities. Its first two terms are the condition of the index.
OPEN_SQL = (
    "kind IN ('task', 'goal', 'problem') AND NOT is_candidate AND state IN ('active', 'absorbed') AND NOT is_wrong"
)


class EntityKind(models.TextChoices):
    TASK = "task"
    GOAL = "goal"
    PROBLEM = "problem"


class EntityStatus(models.TextChoices):
    OPEN = "open"
    DONE = "done"
    DROPPED = DROPPED


class EntityQuerySet(MemoryAtomQuerySet):
    def shown(self) -> Self:
        shown = self.filter(kind__in=ENTITY_KINDS, is_candidate=False, user__isnull=False)
        return shown.filter(state__in=_SHOWN, is_wrong=False)

    def with_status(self, status: str) -> Self:
        if status == EntityStatus.OPEN:
            return self.filter(state__in=_OPEN)
        ended = self.filter(state=MemoryAtom.State.ENDED)
        return ended.filter(value=DROPPED) if status == EntityStatus.DROPPED else ended.exclude(value=DROPPED)

    def latest_first(self) -> Self:
        return self.order_by(CHANGED.desc(), "-id")


class EntityManager(models.Manager.from_queryset(EntityQuerySet)):  # type: ignore[misc]
    def get_queryset(self) -> EntityQuerySet:
        return cast(EntityQuerySet, super().get_queryset()).shown()


class Entity(MemoryAtom):
    """A statement that is a task, a goal or a problem of a person.

    The first line of its text is the title, and the rest is the body.
    """

    objects: ClassVar[EntityManager] = EntityManager()

    class Meta:
        proxy = True
        verbose_name_plural = "entities"

    def __str__(self) -> str:
        return self.title

    @classmethod
    def written(cls, stream: MemoryStream, title: str, body: str = "", **columns: Any) -> Self:
        """Return an unsaved entity with the client's text. `stream` is the person's list (`ensure_list`)."""
        columns = {"atom_id": uuid.uuid4(), "user_id": stream.user_id} | columns
        return cls(
            stream=stream,
            atom_type=cls.Type.FACT,
            content=text_of(title, body),
            content_hash=id_hash(columns["atom_id"]),
            **columns,
        )

    @property
    def entity_id(self) -> uuid.UUID:
        return self.atom_id

    @property
    def title(self) -> str:
        return self.content.partition("\n")[0]

    @property
    def body(self) -> str:
        return self.content.partition("\n")[2]

    @property
    def status(self) -> EntityStatus:
        if self.state in _OPEN:
            return EntityStatus.OPEN
        is_done = self.state == self.State.ENDED and not self.is_wrong and self.value != DROPPED
        return EntityStatus.DONE if is_done else EntityStatus.DROPPED

    @property
    def status_in_words(self) -> str:
        return self.status.label.lower()

    @property
    def is_written(self) -> bool:
        """True if a client or operator wrote the entity. False if an engine extracted it from turns."""
        return not self.engine and not self.source_message_ids

    @property
    def updated_at(self) -> datetime:
        return max(self.formed_at, self.ended_at or self.formed_at)

    @property
    def uri(self) -> str:
        return f"{ENTITIES}{self.atom_id}"


def text_of(title: str, body: str) -> str:
    """Return the text of a statement: the title on one line, followed by the body."""
    line = " ".join(title.splitlines())
    return f"{line}\n{body}" if body else line


def status_columns(status: str, at: datetime, by: str) -> dict[str, Any]:
    if status == EntityStatus.OPEN:
        held = {"state": MemoryAtom.State.ACTIVE, "valid_until": None, "ended_at": None, "ended_by": ""}
        return held | {"value": "", "is_wrong": False, "replaced_by": None, "end_message_ids": []}
    ended = {"state": MemoryAtom.State.ENDED, "valid_until": at, "ended_at": at, "ended_by": by}
    return ended | {"value": DROPPED if status == EntityStatus.DROPPED else ""}


class EntityLink(models.Model):
    """A link between two entities of a person. One blocks, follows, is part of, or relates to the other."""

    class Relation(models.TextChoices):
        BLOCKS = "blocks"
        PART_OF = "part_of"
        RELATES_TO = "relates_to"
        FOLLOWS = "follows"

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    from_entity = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="links_out", db_index=False)
    to_entity = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="links_in")
    relation = models.CharField(max_length=32, choices=Relation, default=Relation.RELATES_TO)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["from_entity", "to_entity", "relation"], name="entity_link_unique"),
            models.CheckConstraint(condition=~Q(from_entity=F("to_entity")), name="entity_link_not_to_itself"),
        ]

    def __str__(self) -> str:
        return f"{self.from_entity} {self.relation} {self.to_entity}"
