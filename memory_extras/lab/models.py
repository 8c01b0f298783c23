"""Probes with their results, and trials of prompts over samples."""

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, OuterRef, Q, Subquery
from django.utils import timezone
from django.utils.text import Truncator

from moments_app.models.atom import content_hash
from moments_app.models.prompt import PromptResource, PromptVersion
from sessions_app.lexemes import whole_words
from sessions_app.models import Session, UserProfile
from sessions_app.models.user_profile import OfPersonQuerySet

QUESTION_MAX_CHARS = 4_000
EXPECTED_MAX_CHARS = 4_000
KEPT_DAYS = 400  # how long results are stored
SEE_PROBES, ADD_PROBES = "lab.view_probe", "lab.add_probe"  # permissions
NO_SEARCHABLE_WORD = "Enter at least one word that can be searched for."


class ProbeQuerySet(OfPersonQuerySet["Probe"]):
    def about(self, session: Session) -> Self:
        """Return probes that are asked in a session, have evidence in it, or are not bound to any session."""
        concerned = Q(session=session) | Q(source_session=session) | Q(session=None)
        return self.filter(concerned, user_id=session.user_id)

    def of_application(self, application: int) -> Self:
        return self.filter(user__application=application)

    def newest_first(self) -> Self:
        return self.order_by("-id")

    def with_latest(self) -> Self:
        """Annotate probes with their latest result: its time (`run_at`), and whether it was met (`was_met`)."""
        latest = ProbeResult.objects.filter(probe=OuterRef("pk")).order_by("-id")
        return self.annotate(
            run_at=Subquery(latest.values("created_at")[:1]), was_met=Subquery(latest.values("is_met")[:1])
        )


class Probe(models.Model):
    """A question, the expected answer, and the turns that contain it."""

    probe_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="probes", db_index=False)
    session = models.ForeignKey(
        Session,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="probes",
        help_text="The session in which the question is asked. If blank, the question is asked in the "
        "person's latest session.",
    )
    question = models.TextField(max_length=QUESTION_MAX_CHARS)
    question_hash = models.CharField(max_length=64, editable=False)
    expected = models.TextField(
        "expected answer",
        max_length=EXPECTED_MAX_CHARS,
        help_text="The answer that the context should contain. A run searches the context for the words of the answer.",
    )
    source_session = models.ForeignKey(
        Session,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The session whose turns contain the answer.",
    )
    evidence_sequences = ArrayField(
        models.BigIntegerField(),
        default=list,
        blank=True,
        help_text="Sequence numbers of the turns that contain the answer.",
    )
    source_message_ids = ArrayField(models.BigIntegerField(), default=list, blank=True, editable=False)
    created_by = models.CharField(max_length=255, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = ProbeQuerySet.as_manager()

    class Meta:
        db_table = "moments_app_probe"  # the table's name before it moved to the extra
        constraints = [
            models.UniqueConstraint(
                fields=["user", "session", "question_hash"], nulls_distinct=False, name="probe_asked_once"
            ),
        ]

    def __str__(self) -> str:
        return Truncator(self.question).chars(80)

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.question_hash = content_hash(self.question)
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Check that the expected answer has searchable words, and that the question is new."""
        if not whole_words(self.expected):
            raise ValidationError({"expected": NO_SEARCHABLE_WORD})
        same = Probe.objects.filter(user=self.user_id, session=self.session_id)
        if same.filter(question_hash=content_hash(self.question)).exclude(pk=self.pk).exists():
            raise ValidationError({"question": "This person already has a probe with this question."})


class ProbeResultQuerySet(OfPersonQuerySet["ProbeResult"]):
    def expired(self) -> Self:
        return self.filter(created_at__lt=timezone.now() - timedelta(days=KEPT_DAYS))

    def newest_first(self) -> Self:
        return self.order_by("-id")


class ProbeResult(models.Model):
    """How much of a probe's expected answer its context contained, and the prompts and settings at that time."""

    run_id = models.UUIDField(help_text="Id of the run. All results of a run have the same id.")
    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="results", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+", db_index=False)
    is_met = models.BooleanField(
        "met",
        help_text="Whether the context contained at least half of the answer's words. If the probe names turns as "
        "evidence, the context must also contain one of these turns.",
    )
    words_found = models.PositiveSmallIntegerField(default=0)
    words_count = models.PositiveSmallIntegerField(default=0)
    missing_words = ArrayField(models.CharField(max_length=255), default=list, blank=True)
    evidence_found = models.PositiveSmallIntegerField(default=0)
    evidence_count = models.PositiveSmallIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0, help_text="Estimated number of tokens in the context.")
    refs = models.JSONField(default=dict, help_text="Addresses of the items in the context, grouped by layer.")
    setup = models.JSONField(
        default=dict, help_text="The prompt versions and settings with which the context was built."
    )
    problem = models.CharField(
        max_length=255, blank=True, help_text="Why no context could be built. Blank if a context was built."
    )
    requested_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = ProbeResultQuerySet.as_manager()

    class Meta:
        db_table = "moments_app_proberesult"
        verbose_name = "probe result"
        constraints = [models.UniqueConstraint(fields=["run_id", "probe"], name="probe_result_once_a_run")]
        indexes = [
            models.Index(fields=["probe", "-id"], name="probe_result_newest"),
            models.Index(fields=["user", "-id"], name="probe_result_user"),
        ]

    def __str__(self) -> str:
        return f"{self.probe_id} {self.created_at:%Y-%m-%d %H:%M}"


class PromptTrialQuerySet(models.QuerySet["PromptTrial"]):
    def for_prompt(self, resource: PromptResource) -> Self:
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

    def count_item(self, *, differs: bool) -> bool:
        """Count another item of the sample. Return False if the sample was already complete."""
        more = PromptTrial.objects.filter(pk=self.pk, tried__lt=F("size"))
        return bool(more.update(tried=F("tried") + 1, differing=F("differing") + int(differs)))


class TrialSide(models.Model):
    """The total figures of one of the versions in a trial."""

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
        TrialSide.objects.filter(pk=self.pk).update(**{name: F(name) + value for name, value in figures.items()})

    @property
    def seconds_a_call(self) -> float:
        return self.milliseconds / 1000 / self.calls if self.calls else 0.0
