"""Webhooks and their deliveries.

A delivery is inserted in the transaction of its event, and refers to the event. If an erasure or a retraction removes
the event from the log, the delivery is not sent. `memoryproject.status.webhooks` sends due deliveries.
"""

import base64
import secrets
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import ExpressionWrapper, F, Q
from django.db.models.functions import Now
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from sessions_app.clock import database_now
from sessions_app.database.deferred import Channel, wake
from sessions_app.models import Application, Event, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.security.encryption import seal, unseal

if TYPE_CHECKING:
    from datetime import datetime

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(hours=1)
RETRIED_FOR = timedelta(days=3)
LEASE = timedelta(minutes=1)  # lease of a delivery attempt; after it expires, another process retries
SECRET_BYTES = 24
RETENTION = timedelta(days=30)


class WebhookEvent(models.TextChoices):
    """The types of events sent to webhooks. Each has a type in the event log and a public name."""

    MOMENTS_BUILT = "moments_built", "moment.made"
    SESSION_SETTLED = "session_settled", "session.settled"
    JOB_FAILED = "job_failed", "job.failed"
    CIRCUIT_OPENED = "circuit_opened", "provider.down"
    USER_ERASED = "user_erased", "person.erased"


def public_name(event: str) -> str:
    return str(dict(WebhookEvent.choices).get(event, event))


class WebhookEndpointQuerySet(models.QuerySet["WebhookEndpoint"]):
    def subscribed_to(self, events: Sequence[Event]) -> Self:
        """Return the endpoints subscribed to these events. All events belong to one person or application."""
        subscribed = self.filter(is_active=True, events__overlap=sorted({event.type for event in events}))
        event = events[0]
        if event.application_id:
            return subscribed.filter(application=event.application_id)
        if event.user_pk:
            person = UserProfile.objects.filter(pk=event.user_pk)
            return subscribed.filter(application__in=person.values("application"))
        return subscribed


def _time_until(column: str) -> "ExpressionWrapper[Any]":
    return ExpressionWrapper(F(column) - Now(), models.DurationField())


class WebhookEndpoint(models.Model):
    application = models.ForeignKey(Application, default=DEFAULT, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=64)
    url = models.CharField(
        "address",
        max_length=2000,
        validators=[RegexValidator(r"^https?://[^\s/]+", "Enter a URL that starts with https:// and has no spaces.")],
        help_text="The URL that receives the events.",
    )
    events = ArrayField(models.CharField(max_length=32, choices=WebhookEvent))
    sealed_secret = models.BinaryField(editable=False)
    is_active = models.BooleanField("active", default=True, help_text="Whether events are sent to this webhook.")
    failures = models.PositiveIntegerField(
        default=0, editable=False, help_text="Number of consecutive attempts that failed."
    )
    waits_until = models.DateTimeField(
        null=True, editable=False, help_text="No event is sent before this time. Blank if events are sent immediately."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = WebhookEndpointQuerySet.as_manager()

    class Meta:
        verbose_name = "webhook"

    def __str__(self) -> str:
        return self.name

    def save(self, *args: object, **kwargs: object) -> None:
        if not self.sealed_secret:
            self.sealed_secret = seal(secrets.token_bytes(SECRET_BYTES), "webhook")
        super().save(*args, **kwargs)  # type: ignore[arg-type]  # as they were given

    def clean(self) -> None:
        super().clean()
        try:
            parts = urlsplit(self.url)
            is_address = bool(parts.hostname) and parts.port != 0
        except ValueError:  # for example an invalid port
            is_address = False
        if not is_address or any(character.isspace() for character in self.url):
            raise ValidationError({"url": "Enter a URL with a host and without spaces."})
        if not self.url.startswith("https://") and not settings.WEBHOOKS.private_addresses:
            raise ValidationError(
                {"url": "The URL must start with https://, unless WEBHOOKS__PRIVATE_ADDRESSES is true."}
            )

    def send_waiting(self) -> None:
        """Make all waiting deliveries due. The operator may have corrected the cause of their failures."""
        self.deliveries.waiting().update(due_at=Now())
        WebhookEndpoint.objects.filter(pk=self.pk).update(waits_until=None)
        wake(Channel.WEBHOOKS)

    @property
    def secret(self) -> bytes:
        """The signing secret; empty if the key that decrypts it no longer exists."""
        return unseal(self.sealed_secret, "webhook") or b""

    @property
    def shown_secret(self) -> str:
        """The secret in the format that receivers' libraries expect."""
        return f"whsec_{base64.b64encode(self.secret).decode()}"


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    def queue_many(self, events: Sequence[Event]) -> None:
        """Queue deliveries in the transaction that adds the events. All events belong to one person or application."""
        public = [event for event in events if event.type in WebhookEvent.values]
        endpoints = WebhookEndpoint.objects.subscribed_to(public) if public else ()
        pairs = [(endpoint, event) for endpoint in endpoints for event in public if event.type in endpoint.events]
        if pairs:
            self.bulk_create([WebhookDelivery(endpoint=endpoint, event=event) for endpoint, event in pairs])
            wake(Channel.WEBHOOKS)

    def waiting(self) -> Self:
        return self.filter(due_at__isnull=False)

    def claim_next(self) -> "WebhookDelivery | None":
        """Lease the most overdue delivery together with its endpoint. Return None if none is due."""
        is_ready = Q(endpoint__waits_until=None) | Q(endpoint__waits_until__lte=Now())
        due = self.filter(is_ready, due_at__lte=Now(), endpoint__is_active=True).order_by("due_at", "id")
        with transaction.atomic():
            locked = due.select_for_update(skip_locked=True, of=("self", "endpoint"))
            if taken := locked.select_related("endpoint", "event").first():
                taken.attempts += 1
                taken.due_at = taken.endpoint.waits_until = database_now() + LEASE
                taken.save(update_fields=["attempts", "due_at"])
                taken.endpoint.save(update_fields=["waits_until"])
        return taken

    def next_due(self, *, within: float) -> float:
        """Return the seconds until a delivery is due or an endpoint's pause ends, but at most `within`."""
        endpoints = WebhookEndpoint.objects.filter(waits_until__gt=Now()).order_by("waits_until")
        next_endpoint = endpoints.values_list(_time_until("waits_until"))[:1]
        next_delivery = self.filter(due_at__gt=Now()).order_by("due_at").values_list(_time_until("due_at"))[:1]
        waits: list[float] = [wait.total_seconds() for (wait,) in next_delivery.union(next_endpoint, all=True)]
        return max(min([*waits, within]), 0.0)

    def expired(self) -> Self:
        return self.filter(due_at=None, queued_at__lt=timezone.now() - RETENTION)


class WebhookDelivery(models.Model):
    delivery_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries", verbose_name="to"
    )
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="+")
    queued_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(
        null=True,
        default=timezone.now,
        help_text="Earliest time of the next attempt to send the event. Blank if the event was sent, or if "
        "no more attempts will be made.",
    )
    attempts = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    error = models.CharField(
        max_length=255, blank=True, help_text="Error of the latest attempt. Blank if the event was sent."
    )

    objects = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        verbose_name = "webhook delivery"
        verbose_name_plural = "webhook deliveries"
        indexes = [models.Index(fields=["due_at", "id"], condition=Q(due_at__isnull=False), name="webhook_due")]

    def __str__(self) -> str:
        return f"{self.event_name} to {self.endpoint}"

    @property
    def event_name(self) -> str:
        return public_name(self.event.type)

    @property
    def state(self) -> str:
        return "sent" if self.sent_at else "waiting" if self.due_at else "failed"

    @transaction.atomic
    def drop(self) -> None:
        """Delete the delivery without sending it, because the person of the event no longer exists."""
        self.delete()
        WebhookEndpoint.objects.filter(pk=self.endpoint_id).update(waits_until=None)

    def record_sent(self) -> None:
        self.due_at, self.sent_at, self.error = None, database_now(), ""
        self.save(update_fields=["due_at", "sent_at", "error"])
        WebhookEndpoint.objects.filter(pk=self.endpoint_id).update(failures=0, waits_until=None)

    @transaction.atomic
    def record_failure(self, error: str) -> None:
        """Postpone this delivery and the endpoint's other deliveries. Stop retrying this one after `RETRIED_FOR`.

        The error message must not contain the address.
        """
        now = database_now()
        failures = F("failures") + 1
        WebhookEndpoint.objects.filter(pk=self.endpoint_id).update(failures=failures)
        self.endpoint.refresh_from_db(fields=["failures"])
        self.endpoint.waits_until = now + pause_after(self.endpoint.failures)
        self.endpoint.save(update_fields=["waits_until"])
        self.due_at = self._next(now)
        self.error = error[:255]
        self.save(update_fields=["due_at", "error"])

    def _next(self, now: "datetime") -> "datetime | None":
        return now + pause_after(self.attempts) if now < self.queued_at + RETRIED_FOR else None

    def resend(self) -> None:
        self.queued_at = self.due_at = database_now()
        self.sent_at, self.attempts = None, 0
        self.save(update_fields=["queued_at", "due_at", "sent_at", "attempts"])
        WebhookEndpoint.objects.filter(pk=self.endpoint_id).update(waits_until=None)
        wake(Channel.WEBHOOKS)


def pause_after(failures: int) -> timedelta:
    """Return the pause after a number of consecutive failures. It doubles with each failure."""
    return min(FIRST_PAUSE * (1 << min(failures - 1, 20)), LONGEST_PAUSE)


@receiver(post_save, sender=Event)
def queue_webhooks(instance: Event, created: bool, **_: Any) -> None:
    if created:
        WebhookDelivery.objects.queue_many([instance])
