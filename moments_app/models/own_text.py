"""Text that the platform itself gave to a model: the lines served to a person, and the turns that repeat them."""

from datetime import timedelta
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models import Session, UserProfile

KEPT = timedelta(days=400)  # a line unserved for longer is not expected to return
REFRESHED = timedelta(days=30)  # minimum time between two updates of a line's date


class ServedLineQuerySet(models.QuerySet["ServedLine"]):
    def expired(self) -> Self:
        """Return lines that have not been served for longer than `KEPT`."""
        return self.filter(served_on__lt=timezone.localdate() - KEPT)


class ServedLine(models.Model):
    """The hash of a line served about a person; never the line's text."""

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+", db_index=False)
    hash = models.BigIntegerField(help_text="Hash of the words in the line.")
    is_quote = models.BooleanField(help_text="True if contexts contained the line only as part of a quoted turn.")
    served_on = models.DateField(
        default=timezone.localdate,
        db_index=True,
        help_text="Date on which a context last contained the line. It is updated at most every 30 days.",
    )

    objects = ServedLineQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "hash"], name="served_line_unique")]

    def __str__(self) -> str:
        return f"{self.hash:x}"


class OwnText(models.Model):
    """A turn's lines that the platform had served before. They are found when the turn arrives, and never changed.

    They refer to the turn's place instead of its row, so a turn that is archived and restored keeps them.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="own_texts", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    sequence = models.BigIntegerField()
    places = ArrayField(
        models.PositiveIntegerField(),
        null=True,
        help_text="Numbers (from 0) of the turn's lines that repeat an earlier context. Blank if all lines repeat an "
        "earlier context.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "sequence"], name="own_text_unique"),
            models.CheckConstraint(condition=Q(sequence__gte=0), name="own_text_sequence_from_zero"),
        ]

    def __str__(self) -> str:
        return f"of turn {self.sequence}"
