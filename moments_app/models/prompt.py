"""Prompts that operators can edit. A prompt is a resource with an address and immutable, numbered versions."""

from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.text import capfirst

from sessions_app.models import Application
from sessions_app.models.event import named_actor
from sessions_app.refusals import Conflict


class NewerVersion(Conflict):
    """A newer version was saved in the meantime. The message includes its author and time."""

    code = "newer_version"

    def __init__(self, newest: "PromptVersion") -> None:
        at = f"{newest.created_at:%Y-%m-%d %H:%M} UTC"
        super().__init__(
            f"{capfirst(named_actor(newest.created_by))} saved version {newest.number} before you, at {at}."
        )
        self.newest = newest


class PromptResourceQuerySet(models.QuerySet["PromptResource"]):
    def for_application(self, uri: str, application: int) -> Self:
        """Return the resources with this address that an application can use, its own first, then the global one."""
        own_first = F("application").asc(nulls_last=True)
        return self.filter(Q(application=application) | Q(application=None), uri=uri).order_by(own_first)

    def in_force(self, application: int) -> Self:
        """Return an application's resources with an active version, global ones first, then its own."""
        active = self.filter(Q(application=application) | Q(application=None), active_version__isnull=False)
        return active.select_related("active_version").order_by(F("application").asc(nulls_first=True), "uri")

    def version_in_force(self, uri: str, application: int) -> "PromptVersion":
        """Return the active version of a prompt for an application, its own or otherwise the global one.

        Raises:
            PromptResource.DoesNotExist: there is no active version. The message contains the URI.
        """
        active = self.for_application(uri, application).filter(active_version__isnull=False)
        resource = active.select_related("active_version").first()
        if resource is None or resource.active_version is None:
            raise PromptResource.DoesNotExist(f"There is no prompt {uri} with an active version.")
        return resource.active_version


class PromptResource(models.Model):
    class Purpose(models.TextChoices):
        MOMENT_BUILDER = "moment-builder"
        ROLLING_SUMMARY = "rolling-summary"
        MEMORY_EXTRACTION = "memory-extraction"
        STREAM_CONSOLIDATION = "stream-consolidation"
        SESSION_DIGEST = "session-digest"
        RECALL_QUERY = "recall-query"
        MEMORY_POLICY = "memory-policy"

    uri = models.CharField(max_length=255, help_text="Address of the prompt, such as rem://prompts/moment-builder.")
    application = models.ForeignKey(
        Application,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The application that the prompt belongs to. Blank if the prompt is site-wide.",
    )
    name = models.CharField(max_length=255)
    purpose = models.CharField(max_length=32, choices=Purpose)
    resource_type = models.CharField(max_length=32, default="prompt", editable=False)
    metadata = models.JSONField(default=dict, blank=True)
    active_version = models.ForeignKey(
        "PromptVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="active_in"
    )
    active_since = models.DateTimeField(null=True, blank=True, editable=False)
    previous_version = models.ForeignKey(
        "PromptVersion",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Version that was active before the current version.",
    )

    objects = PromptResourceQuerySet.as_manager()

    class Meta:
        verbose_name = "prompt resource"
        constraints = [
            models.UniqueConstraint(
                fields=["uri", "application"], nulls_distinct=False, name="prompt_unique_in_application"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check the unique constraint. Django can't, because a form may not have all of its fields."""
        same = PromptResource.objects.filter(uri=self.uri, application=self.application)
        if same.exclude(pk=self.pk).exists():
            raise ValidationError({"uri": "There is already a prompt resource with this address."})

    @transaction.atomic
    def add_version(
        self, content: str, *, created_by: str, note: str = "", after: int | None = None
    ) -> "PromptVersion":
        """Add the text as the next version, without activating it.

        Args:
            note: what changed, and why.
            after: number of the newest version that the author has seen. 0 if there was none; None to skip this check.

        Raises:
            NewerVersion: there is a newer version that the author hasn't seen.
        """
        PromptResource.objects.select_for_update().get(pk=self.pk)
        newest = self.versions.first()
        if newest and after is not None and after < newest.number:
            raise NewerVersion(newest)
        number = newest.number + 1 if newest else 1
        return self.versions.create(number=number, content=content, note=note, created_by=created_by)

    @transaction.atomic
    def activate(self, version: "PromptVersion") -> None:
        """Activate one of this resource's versions, and remember the previous one.

        Raises:
            ValueError: the version belongs to another resource.
        """
        if version.resource_id != self.pk:
            raise ValueError(f"Version {version.pk} is not one of {self.uri}.")
        before = PromptResource.objects.select_for_update().get(pk=self.pk)
        if before.active_version_id != version.pk:
            self.active_version, self.active_since = version, timezone.now()
            self.previous_version = before.active_version
            self.save(update_fields=["active_version", "active_since", "previous_version"])


class PromptVersion(models.Model):
    """An immutable text of a prompt."""

    resource = models.ForeignKey(PromptResource, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    content = models.TextField()
    note = models.CharField(max_length=255, blank=True)
    created_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)
    is_tried = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Whether an operator has tried the version on sample sessions or streams.",
    )

    class Meta:
        verbose_name = "prompt version"
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["resource", "number"], name="prompt_version_number_unique")]

    def __str__(self) -> str:
        return f"{self.resource} v{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise ValueError("A prompt version can't be changed. Add a new version.")
        super().save(*args, **kwargs)
