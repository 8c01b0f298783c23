"""The sender of webhooks, which notify other systems of events.

A thread of the watchdog claims due deliveries, and further threads post them. A few receivers are served in parallel,
with one delivery at a time for each, so a slow receiver doesn't delay the others. A failed delivery is retried with
increasing pauses. Other deliveries to the same receiver pause too, and may be sent first. A process may die before it
records a success, so a receiver may get a delivery twice, with the same `webhook-id`. Requests are signed according to
Standard Webhooks (standardwebhooks.com).
"""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import structlog
from django.conf import settings
from django.db import connection

from moments_app.engines.transport import BoundedTransport, NotPublic, TooLarge
from moments_app.models import WebhookDelivery
from moments_app.models.webhook import WebhookEvent
from sessions_app.database.deferred import IDLE, Channel, NotificationListener, ThreadWaker
from sessions_app.models import Event, Session, UserProfile

SENDERS = 4  # maximum receivers that are served in parallel
SECONDS = 10.0  # timeout of an attempt
ANSWER_BYTES = 100_000
RETRY_SECONDS = 5.0  # seconds before the next attempt if the database is down

logger = structlog.get_logger(__name__)


# --- payloads: ids, never text ---


def _of_person(event: Event) -> dict[str, Any] | None:
    person = UserProfile.objects.filter(pk=event.user_pk).first() if event.user_pk else None
    if person is None:
        return None
    sessions = Session.objects.filter(pk=event.session_pk, user=person) if event.session_pk else Session.objects.none()
    return {"user_id": person.user_id, "session_id": sessions.values_list("session_id", flat=True).first()}


def _payload_with(*names: str) -> Callable[[Event], dict[str, Any] | None]:
    """Return a function that builds the payload of a person's event: the ids, and the given fields."""

    def facts(event: Event) -> dict[str, Any] | None:
        ids = _of_person(event)
        return None if ids is None else ids | {name: event.payload.get(name) for name in names}

    return facts


def _of_job(event: Event) -> dict[str, Any] | None:
    ids = {"user_id": None, "session_id": None} if event.user_pk is None else _of_person(event)
    is_complete = ids is not None and "job_id" in event.payload  # an erasure removes the job_id
    return (ids or {}) | {name: event.payload[name] for name in ("job_id", "process")} if is_complete else None


PAYLOADS: dict[str, Callable[[Event], dict[str, Any] | None]] = {
    WebhookEvent.MOMENTS_BUILT: _payload_with("moment_keys", "first_sequence", "last_sequence"),
    WebhookEvent.SESSION_SETTLED: _payload_with("first_sequence", "last_sequence"),
    WebhookEvent.JOB_FAILED: _of_job,
    WebhookEvent.CIRCUIT_OPENED: lambda event: {name: event.payload[name] for name in ("engine", "work")},
    WebhookEvent.USER_ERASED: lambda event: {"erasure_id": event.payload["erasure_id"]},
}


def body_of(delivery: WebhookDelivery) -> bytes | None:
    event = delivery.event
    facts = PAYLOADS[event.type](event)
    if facts is None:
        return None
    body = {
        "type": delivery.event_name,
        "timestamp": event.created_at.isoformat(timespec="milliseconds"),
        "data": facts,
    }
    return json.dumps(body).encode()


# --- the request ---


class NotReceived(Exception):
    """The receiver did not accept the message. The text says why, without the URL."""


def post(
    url: str,
    body: bytes,
    message_id: str,
    secret: bytes | None,
    *,
    headers: dict[str, str] | None = None,
    public_only: bool = False,
) -> None:
    """Make one attempt to post JSON, signed if there is a secret. Redirects are not followed.

    Args:
        message_id: The id of the message, which is the same for each attempt.
        secret: The key of the signature. None for no signature.
        public_only: Reject addresses of private networks, and plain HTTP.

    Raises:
        NotReceived: The response was not 2xx.
    """
    if public_only and not url.startswith("https://"):
        raise NotReceived("needs an https URL, unless WEBHOOKS__PRIVATE_ADDRESSES is true")
    signature = {} if secret is None else _signature(body, message_id, secret)
    sent = {"Content-Type": "application/json"} | signature | (headers or {})
    transport = BoundedTransport(timeout=SECONDS, max_bytes=ANSWER_BYTES, public_only=public_only)
    try:
        with httpx2.Client(transport=transport, timeout=SECONDS) as client:
            status = client.post(url, content=body, headers=sent).status_code
    except NotPublic:
        raise NotReceived("needs a public address, unless WEBHOOKS__PRIVATE_ADDRESSES is true") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, TooLarge, OSError, ValueError) as error:
        raise NotReceived(f"can't be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise NotReceived(f"answered with status {status}")


def _signature(body: bytes, message_id: str, secret: bytes) -> dict[str, str]:
    at = str(int(time.time()))
    digest = hmac.new(secret, b".".join((message_id.encode(), at.encode(), body)), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": signature}


# --- delivery ---


def send(delivery: WebhookDelivery) -> None:
    body = body_of(delivery)
    if body is None:
        delivery.drop()
        return
    endpoint = delivery.endpoint
    message_id, public_only = f"msg_{delivery.delivery_id.hex}", not settings.WEBHOOKS.private_addresses
    connection.close()  # use no connection while waiting for the receiver
    try:
        post(endpoint.url, body, message_id, endpoint.secret, public_only=public_only)
    except NotReceived as error:
        delivery.record_failure(str(error))
        logger.warning("a webhook was not delivered", webhook=endpoint.pk, why=str(error), attempts=delivery.attempts)
    else:
        delivery.record_sent()


def serve(ending: threading.Event) -> None:
    free, ended = threading.Semaphore(SENDERS), ThreadWaker()
    # When a delivery ends, wake up, because the next one to the same receiver may be due.
    listener = NotificationListener(Channel.WEBHOOKS, interrupt=ended.reading)
    while not ending.is_set():
        free.acquire()
        is_sending = False
        try:
            is_sending = _start_next(free, ended)
            if not is_sending:
                listener.wait(WebhookDelivery.objects.next_due(within=IDLE))
        except Exception as error:
            logger.warning("no webhook delivery could be claimed", error=type(error).__name__)
            connection.close()
            ending.wait(RETRY_SECONDS)
        finally:
            if not is_sending:
                free.release()
    connection.close()


def _start_next(free: threading.Semaphore, ended: ThreadWaker) -> bool:
    """Send the delivery that has been due longest, in a thread. Return False if none is due."""
    delivery = WebhookDelivery.objects.claim_next()
    if delivery is None:
        return False
    threading.Thread(target=_send_in_thread, args=[delivery, free, ended], name="webhook", daemon=True).start()
    return True


def _send_in_thread(delivery: WebhookDelivery, free: threading.Semaphore, ended: ThreadWaker) -> None:
    """Send in a separate thread. After an unexpected error, the delivery is retried when its lease expires."""
    try:
        send(delivery)
    except Exception as error:
        logger.exception("a webhook could not be sent", error=type(error).__name__)
    finally:
        connection.close()
        free.release()
        ended.wake()
