"""Tasks, goals and problems of a person, and the links between them."""

import uuid
from typing import Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q

from sessions_app.lexemes import VERSION
from sessions_app.models import Session, UserProfile
from sessions_app.models.searched import Searched, SearchedQuerySet


class EntityQuerySet(SearchedQuerySet["Entity"]):
    def open(self) -> Self:
        return self.filter(status=Entity.Status.OPEN)

    def latest_first(self) -> Self:
        return self.order_by("-updated_at", "-id")


class Entity(Searched):
    """A task, goal or problem of a person."""

    SEARCHED = ("title", "body")

    class Kind(models.TextChoices):
        TASK = "task"
        GOAL = "goal"
        PROBLEM = "problem"

    class Status(models.TextChoices):
        OPEN = "open"
        DONE = "done"
        DROPPED = "dropped"

    entity_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="entities", db_index=False)
    kind = models.CharField(max_length=16, choices=Kind)
    title = models.CharField(max_length=255)
    body = models.TextField(blank=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.OPEN)
    due_at = models.DateTimeField(null=True, blank=True)
    source_session = models.ForeignKey(
        Session, null=True, blank=True, on_delete=models.SET_NULL, related_name="entities"
    )
    written_by = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The API key that added the entity (key:…). Blank if unknown.",
    )
    external_id = models.CharField(  # noqa: DJ001 (unique where it is set)
        max_length=255,
        null=True,
        blank=True,
        editable=False,
        help_text="The client's own id for the entity. Blank if the client gave none.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = EntityQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "entities"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "external_id"],
                condition=Q(external_id__isnull=False),
                name="entity_external_id_unique_of_person",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "status", "-updated_at", "-id"], name="entity_user_latest"),
            GinIndex(fields=["search_vector"], name="entity_search"),
            models.Index(fields=["user", "id"], condition=Q(search_version__lt=VERSION), name="entity_unindexed"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def uri(self) -> str:
        return f"rem://entities/{self.entity_id}"


class EntityLink(models.Model):
    """A link between two entities of the same person: one blocks, follows, is part of, or relates to the other."""

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
