"""Releases are items learned from one or more people, which an operator rewords and shares with others.

Releases are signed, to detect rows that were not inserted by the application. A new wording is a new release that
replaces the old one. Revoked releases stay on record.
"""

import uuid
from collections.abc import Iterable
from typing import Any, Self

from django.core import signing
from django.db import models
from django.db.models import Exists, OuterRef
from django.utils import timezone

from moments_app.models.atom import MemoryAtom
from moments_app.models.stream import MemoryStream
from sessions_app.models import UserProfile

_SIGNER = signing.Signer(salt="moments_app.release", sep=":")


class ReleaseQuerySet(models.QuerySet["Release"]):
    def in_effect(self) -> Self:
        return self.filter(revoked_at=None)

    def made_from(self, atoms: Iterable[MemoryAtom]) -> Self:
        """Return releases that have one of these candidates as a source."""
        found = ReleaseSource.objects.filter(atom__in=[atom.pk for atom in atoms])
        return self.filter(pk__in=found.values("release"))

    def only_from(self, user: UserProfile) -> Self:
        sources = ReleaseSource.objects.filter(release=OuterRef("pk"))
        return self.filter(Exists(sources.filter(user=user)), ~Exists(sources.exclude(user=user)))


class Release(models.Model):
    release_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    stream = models.ForeignKey(MemoryStream, on_delete=models.CASCADE, related_name="releases")
    atom = models.OneToOneField(
        MemoryAtom,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="release",
        help_text="The item that other people see.",
    )
    wording = models.TextField()
    actor = models.CharField(max_length=255, help_text="The operator who released the item (operator:…).")
    note = models.CharField(max_length=2_000, blank=True)
    signature = models.CharField(
        max_length=255, editable=False, help_text="Signature of the wording, the stream and the creation time."
    )
    narrower = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="wider",
        help_text="The earlier release to one agent's users. This release extends it to the users of all agents.",
    )
    replaces = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="replaced_by",
        help_text="The earlier release whose wording this release replaces.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=255, blank=True)

    objects = ReleaseQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return str(self.release_id)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Sign the release when it is first saved. A later change of the wording invalidates the signature."""
        self.signature = self.signature or _SIGNER.signature(self._signed)
        super().save(*args, **kwargs)

    @property
    def _signed(self) -> str:
        return "\n".join([str(self.stream.stream_id), self.created_at.isoformat(), self.wording])

    @property
    def is_signed(self) -> bool:
        """True if the signature is valid and the shared item still has the signed wording."""
        says = self.atom.content if self.atom and not self.revoked_at else self.wording
        try:
            _SIGNER.unsign(f"{self._signed}:{self.signature}")
        except signing.BadSignature:
            return False
        return says == self.wording


class ReleaseSource(models.Model):
    """A source of a release: a candidate, and the person it was learned from."""

    release = models.ForeignKey(Release, on_delete=models.CASCADE, related_name="sources")
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    atom = models.ForeignKey(MemoryAtom, null=True, blank=True, on_delete=models.SET_NULL, related_name="released_in")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["release", "atom"], name="release_source_once")]

    def __str__(self) -> str:
        return f"of {self.user}"
