"""What this platform itself put before a model: the lines it served to a person, and the turns that have them again."""

from datetime import timedelta
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models import Session, UserProfile

KEPT = timedelta(days=400)  # what was not served for longer is not expected back
REFRESHED = timedelta(days=30)  # a line that is served again and again is written once in that time


class ServedLineQuerySet(models.QuerySet["ServedLine"]):
    def expired(self) -> Self:
        """Return those not served for so long that nobody sends them back."""
        return self.filter(served_on__lt=timezone.localdate() - KEPT)


class ServedLine(models.Model):
    """The hash of a line that was served about a person; never its text."""

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+", db_index=False)
    hash = models.BigIntegerField(help_text="Hash of the words in the line.")
    is_quote = models.BooleanField(help_text="True if contexts contained the line only as part of a quoted turn.")
    served_on = models.DateField(
        default=timezone.localdate,
        db_index=True,
        help_text="Date on which the line was last served, accurate to 30 days.",
    )

    objects = ServedLineQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "hash"], name="served_line_unique")]

    def __str__(self) -> str:
        return f"{self.hash:x}"


class OwnText(models.Model):
    """The lines of a turn that the platform had served before: known since it arrived, and never changed.

    By the turn's place, not its row: a turn that is archived and restored has it again.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="own_texts", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    sequence = models.BigIntegerField()
    places = ArrayField(
        models.PositiveIntegerField(),
        null=True,
        help_text="Which lines of the turn repeat an earlier context, as line numbers from 0. Blank if all lines "
        "repeat an earlier context.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "sequence"], name="own_text_unique"),
            models.CheckConstraint(condition=Q(sequence__gte=0), name="own_text_sequence_from_zero"),
        ]

    def __str__(self) -> str:
        return f"of turn {self.sequence}"
