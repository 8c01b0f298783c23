"""The history of statements: who changed what, when and why."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from django.apps import apps
from django.db import models
from django.utils import timezone

from moments_app.models.retraction import ExactEncoder
from sessions_app.models import UserProfile

if TYPE_CHECKING:
    from moments_app.models.atom import MemoryAtom

# The columns of a statement that are shown in its history. The others contain primary keys.
SHOWN = ("content", "kind", "state", "formed_at", "valid_from", "valid_until", "due_at", "is_wrong", "is_pinned")


@dataclass(frozen=True)
class Cause:
    """The actor and the reason of a change of statements.

    Args:
        actor: `key:…`, `operator:…`, `job:…` or the name of a command or schedule.
        reason: see `StatementChange.reason`.
    """

    actor: str
    reason: str = ""


class StatementChangeQuerySet(models.QuerySet["StatementChange"]):
    def of_person(self, user: UserProfile) -> Self:
        """Return the changes of the statements in a person's own streams."""
        return self.filter(user=user, statement__is_candidate=False)

    def newest_first(self) -> Self:
        return self.order_by("-id")

    def record(self, action: str, cause: Cause, changes: "Iterable[tuple[MemoryAtom, Mapping[str, Any]]]") -> None:
        """Record changes, in the transaction that makes them.

        Args:
            action: one of `StatementChange.Action`.
            changes: pairs of a statement and the former values of its changed columns.
        """
        self.bulk_create(
            StatementChange(
                statement_id=statement.pk,
                user_id=statement.user_id,
                action=action,
                before=before,
                actor=cause.actor,
                reason=cause.reason,
            )
            for statement, before in changes
        )


class StatementChange(models.Model):
    class Action(models.TextChoices):
        EDITED = "edited"
        MOVED = "moved"
        CORRECTED = "corrected"
        WITHDRAWN = "withdrawn"
        ENDED = "ended"
        SUPERSEDED = "superseded"
        REOPENED = "reopened"
        MERGED = "merged"
        SPLIT = "split"
        EVICTED = "evicted"
        RESTORED = "restored"
        RETRACTED = "retracted"
        UNDONE = "undone"

    change_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    statement = models.ForeignKey(
        "moments_app.MemoryAtom", on_delete=models.CASCADE, related_name="history", db_index=False
    )
    user = models.ForeignKey(
        UserProfile,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The person to whom the statement belongs. Blank if the statement belongs to a shard.",
    )
    action = models.CharField(max_length=16, choices=Action)
    before = models.JSONField(
        default=dict, encoder=ExactEncoder, help_text="Names of the changed columns, with the values before the change."
    )
    actor = models.CharField(
        max_length=255,
        help_text="What changed the statement, such as an API key (key:…), an operator (operator:…) or a job (job:…).",
    )
    reason = models.CharField(
        max_length=255,
        blank=True,
        help_text="Reason for the change, for example a correction (correction:…) or a retraction (retraction:…). "
        "Blank if the action explains the change.",
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = StatementChangeQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["statement", "-id"], name="change_of_statement")]

    def __str__(self) -> str:
        return f"{self.action} at {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def columns(self) -> dict[str, Any]:
        """The former values of the changed columns, which an update can restore."""
        fields = apps.get_model("moments_app", "MemoryAtom")._meta
        columns = {name: cast("models.Field[Any, Any]", fields.get_field(name)) for name in self.before}
        return {name: columns[name].to_python(value) for name, value in self.before.items()}

    @property
    def shown(self) -> dict[str, Any]:
        """The former values without primary keys."""
        return {name: self.before[name] for name in SHOWN if name in self.before}
