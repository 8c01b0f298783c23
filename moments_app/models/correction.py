"""The history of statements, contradictions between facts, and corrections of facts and of all matching texts."""

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from django.apps import apps
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils import timezone
from django.utils.text import Truncator

from moments_app.models.retraction import ExactEncoder
from sessions_app.models import Session, UserProfile
from sessions_app.models.user_profile import OfPersonQuerySet

if TYPE_CHECKING:
    from moments_app.models.atom import MemoryAtom

# The columns of a statement that are shown in its history. The others contain primary keys.
SHOWN_COLUMNS = (
    "content",
    "kind",
    "state",
    "formed_at",
    "valid_from",
    "valid_until",
    "due_at",
    "is_wrong",
    "is_pinned",
)


@dataclass(frozen=True)
class Cause:
    """The actor and the reason of a change of statements."""

    actor: str  # `key:…`, `operator:…`, `job:…` or the name of a command or schedule
    reason: str = ""  # see `StatementChange.reason`


class StatementChangeQuerySet(models.QuerySet["StatementChange"]):
    def of_person(self, user: UserProfile) -> Self:
        """Return the changes of the statements in a person's own streams."""
        return self.filter(user=user, statement__is_candidate=False)

    def newest_first(self) -> Self:
        return self.order_by("-id")

    def record(self, action: str, cause: Cause, changes: "Iterable[tuple[MemoryAtom, Mapping[str, Any]]]") -> None:
        """Record statements and the former values of their changed columns, in the transaction that changes them."""
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
        return {name: self.before[name] for name in SHOWN_COLUMNS if name in self.before}


class ContradictionQuerySet(models.QuerySet["Contradiction"]):
    def waiting(self) -> Self:
        return self.filter(decision="")


class Contradiction(models.Model):
    """Two facts that may contradict each other. An operator decides, because the engine was unsure."""

    class Decision(models.TextChoices):
        ACCEPTED = "accepted"
        DECLINED = "declined"

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="contradictions")
    earlier = models.ForeignKey("moments_app.MemoryAtom", on_delete=models.CASCADE, related_name="+")
    later = models.ForeignKey("moments_app.MemoryAtom", on_delete=models.CASCADE, related_name="contradictions")
    reason = models.CharField(
        max_length=255, help_text="Why it is unclear whether the later fact ended the earlier fact."
    )
    created_at = models.DateTimeField(default=timezone.now)
    decision = models.CharField(
        max_length=16,
        choices=Decision,
        blank=True,
        default="",
        help_text="Whether an operator confirmed that the later fact ended the earlier fact. Blank if no operator "
        "has decided.",
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=255, blank=True, default="")

    objects = ContradictionQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["earlier", "later"], name="contradiction_once")]
        indexes = [models.Index(fields=["id"], condition=models.Q(decision=""), name="contradiction_waiting")]

    def __str__(self) -> str:
        return f"of {self.created_at:%Y-%m-%d %H:%M}"


class CorrectionQuerySet(OfPersonQuerySet["Correction"]):
    def in_effect(self) -> Self:
        return self.filter(undone_at=None)

    def newest_first(self) -> Self:
        return self.order_by("-id")


class Correction(models.Model):
    """A correction, end or withdrawal of a fact, with the changes to all matching texts."""

    class Kind(models.TextChoices):
        CORRECTED = "corrected"
        ENDED = "ended"
        WITHDRAWN = "withdrawn"

    correction_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="corrections")
    fact = models.ForeignKey(
        "moments_app.MemoryAtom", null=True, blank=True, on_delete=models.SET_NULL, related_name="corrections"
    )
    kind = models.CharField(max_length=16, choices=Kind)
    before = models.TextField(help_text="Text of the fact before the correction.")
    after = models.TextField(
        blank=True, help_text="Text of the fact after the correction. Blank if no text replaced the fact."
    )
    valid_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the fact stopped being true. Blank if the correction did not end the fact.",
    )
    changes = models.JSONField(
        default=list,
        encoder=DjangoJSONEncoder,
        help_text="All texts that the correction changed, each before and after the change.",
    )
    requested_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now)
    undone_at = models.DateTimeField(null=True, blank=True)

    objects = CorrectionQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.kind}: {Truncator(self.before).chars(80)}"

    @property
    def reason(self) -> str:
        return f"correction:{self.correction_id}"


class CorrectedTurn(models.Model):
    """A turn with a statement that was corrected later. Its text is unchanged, but engines receive the correction."""

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    sequence = models.BigIntegerField()
    correction = models.ForeignKey(Correction, null=True, blank=True, on_delete=models.SET_NULL, related_name="turns")
    wrong = models.TextField(help_text="The incorrect words in the turn.")
    right = models.TextField(blank=True, help_text="The correct words. If blank, the incorrect words are removed.")

    class Meta:
        indexes = [models.Index(fields=["user", "session", "sequence"], name="corrected_turn")]

    def __str__(self) -> str:
        return f"{self.session} {self.sequence}"

    def applies_to(self, atom: "MemoryAtom") -> bool:
        """Return whether an atom is from this session and from before the correction."""
        is_older = self.correction is None or atom.formed_at <= self.correction.created_at
        return is_older and atom.source_session_id == self.session_id and atom.user_id == self.user_id

    def corrected(self, text: str) -> str:
        return replace_words(text, self.wrong, self.right)


def replace_words(text: str, wrong: str, right: str) -> str:
    """Return a text with all whole-word occurrences of some words replaced.

    If the words occur with the same capitals, only these occurrences are replaced: "Will" is not "will".
    """
    pattern = rf"(?<!\w){re.escape(wrong)}(?![\w+#])"  # "C" must not match in "C++"
    return re.sub(pattern, lambda _: right, text, flags=0 if re.search(pattern, text) else re.IGNORECASE)
