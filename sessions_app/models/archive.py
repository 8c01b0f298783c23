"""Archives: files with turns that are past the retention period."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from sessions_app.models.session import Session
from sessions_app.models.user_profile import UserProfile


class Archive(models.Model):
    """A session's turns of one month: a span of a gzipped file of JSON lines in the storage named `archive`.

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
