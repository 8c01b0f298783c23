"""Trials of a prompt over a sample. They store only figures, to help decide whether to activate a version."""

from collections.abc import Mapping
from typing import Any, Self

from django.db import models
from django.db.models import F

from moments_app.models.prompt import PromptResource, PromptVersion


class PromptTrialQuerySet(models.QuerySet["PromptTrial"]):
    def of(self, resource: PromptResource) -> Self:
        """Return the trials of a prompt's versions, newest first, with their figures."""
        found = self.filter(version__resource=resource).select_related("version")
        return found.prefetch_related("sides__version").order_by("-pk")


class PromptTrial(models.Model):
    """A version of a prompt, compared with the active version on several sessions or streams."""

    version = models.ForeignKey(PromptVersion, on_delete=models.CASCADE, related_name="trials")
    size = models.PositiveIntegerField(help_text="Number of sessions or streams in the sample.")
    tried = models.PositiveIntegerField(
        default=0, help_text="Number of sessions or streams on which the version was tried."
    )
    differing = models.PositiveIntegerField(
        default=0, help_text="Number of sessions or streams for which the two versions had different results."
    )
    requested_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = PromptTrialQuerySet.as_manager()

    class Meta:
        db_table = "moments_app_prompttrial"

    def __str__(self) -> str:
        return f"Trial of {self.version} on {self.size}"

    def is_taken(self, *, differs: bool) -> bool:
        """Count another item of the sample. Return False if the sample was already complete."""
        more = PromptTrial.objects.filter(pk=self.pk, tried__lt=F("size"))
        return bool(more.update(tried=F("tried") + 1, differing=F("differing") + int(differs)))


class TrialSide(models.Model):
    """The figures of one of a trial's versions over the sample."""

    trial = models.ForeignKey(PromptTrial, on_delete=models.CASCADE, related_name="sides")
    version = models.ForeignKey(PromptVersion, on_delete=models.CASCADE, related_name="+")
    calls = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(
        default=0, help_text="Number of sessions or streams for which the version failed."
    )
    milliseconds = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    usd = models.DecimalField(max_digits=12, decimal_places=6, default=0)
    kept = models.PositiveIntegerField(default=0)
    dropped = models.PositiveIntegerField(default=0)
    probes = models.PositiveIntegerField(default=0)
    met = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "moments_app_trialside"
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["trial", "version"], name="trial_side_once")]

    def __str__(self) -> str:
        return f"{self.version} in {self.trial_id}"

    def add(self, figures: Mapping[str, Any]) -> None:
        """Add the figures of another item of the sample."""
        TrialSide.objects.filter(pk=self.pk).update(**{name: F(name) + value for name, value in figures.items()})

    @property
    def seconds_a_call(self) -> float:
        """The mean time of an engine call. 0 without calls."""
        return self.milliseconds / 1000 / self.calls if self.calls else 0.0
