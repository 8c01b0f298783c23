"""Sending what other systems are told: events of the log, as Standard Webhooks has it (standardwebhooks.com).

A thread beside the watch takes what is due, and others post it: to a few receivers side by side, to each one delivery
at a time, so that a slow one holds up no other. What doesn't arrive comes again, ever later, and its receiver gets
nothing else before. A receiver may get the same twice, for a process may die between sending and noting it:
`webhook-id` stays the same.
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
from django.db import DatabaseError, connection

from moments_app.engines.transport import BoundedTransport, TooLarge
from moments_app.models import WebhookDelivery
from moments_app.models.webhook import Occasion
from sessions_app.models import Event, Session, UserProfile

SECONDS = 10.0  # for an attempt
ANSWER_BYTES = 100_000  # are more than any receiver has to say
SENDERS = 4  # receivers that are posted to at once
LOOK = 1.0  # seconds between two looks when nothing is due
AWAY = 5.0  # seconds before the next look when the database doesn't answer

logger = structlog.get_logger(__name__)


class NotReceived(Exception):
    """The post came to nothing; the message says why, without an address."""


def post(url: str, body: bytes, headers: dict[str, str], *, public_only: bool = False) -> None:
    """Post JSON. A redirect is not followed.

    Args:
        url: where to.
        body: what.
        headers: that sign it, say.
        public_only: not to an address of a private network, nor without TLS.

    Raises:
        NotReceived: there was no answer 2xx.
    """
    if public_only and not url.startswith("https://"):
        raise NotReceived("needs an https address: WEBHOOKS__PRIVATE_ADDRESSES allows others")
    transport = BoundedTransport(timeout=SECONDS, max_bytes=ANSWER_BYTES, public_only=public_only)
    try:
        with httpx2.Client(transport=transport, timeout=SECONDS) as client:
            status = client.post(url, content=body, headers=headers | {"Content-Type": "application/json"}).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TooLarge, OSError, ValueError) as error:
        raise NotReceived(f"can't be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise NotReceived(f"answered with status {status}")


def signed(body: bytes, message_id: str, secret: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks.

    Args:
        body: what is posted.
        message_id: the same for each attempt.
        secret: the key of the HMAC.
    """
    at = str(int(time.time()))
    digest = hmac.new(secret, b".".join((message_id.encode(), at.encode(), body)), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": signature}


# --- what is told: ids, never text ---


def _of_person(event: Event) -> dict[str, Any] | None:
    """Return whose event it is, and of which session; None for somebody who was erased since."""
    person = UserProfile.objects.filter(pk=event.user_pk).first() if event.user_pk else None
    if person is None:
        return None
    sessions = Session.objects.filter(pk=event.session_pk, user=person) if event.session_pk else Session.objects.none()
    return {"user_id": person.user_id, "session_id": sessions.values_list("session_id", flat=True).first()}


def _with(*names: str) -> Callable[[Event], dict[str, Any] | None]:
    """Return what tells of a person's event: whose it is, and fields of the log."""

    def facts(event: Event) -> dict[str, Any] | None:
        whose = _of_person(event)
        return None if whose is None else whose | {name: event.payload.get(name) for name in names}

    return facts


def _of_job(event: Event) -> dict[str, Any] | None:
    whose = {"user_id": None, "session_id": None} if event.user_pk is None else _of_person(event)
    is_told = whose is not None and "job_id" in event.payload  # which an erasure has blanked
    return (whose or {}) | {name: event.payload[name] for name in ("job_id", "process")} if is_told else None


FACTS: dict[str, Callable[[Event], dict[str, Any] | None]] = {
    Occasion.MOMENTS_BUILT: _with("moment_keys", "first_sequence", "last_sequence"),
    Occasion.SESSION_SETTLED: _with("first_sequence", "last_sequence"),
    Occasion.JOB_FAILED: _of_job,
    Occasion.CIRCUIT_OPENED: lambda event: {name: event.payload[name] for name in ("engine", "work")},
    Occasion.USER_ERASED: lambda event: {"erasure_id": event.payload["erasure_id"]},
}


def body_of(delivery: WebhookDelivery) -> bytes | None:
    """Return what is posted; None when there is nobody left to tell of."""
    event = delivery.event
    facts = FACTS[event.type](event)
    if facts is None:
        return None
    told = {"type": delivery.called, "timestamp": event.created_at.isoformat(timespec="milliseconds"), "data": facts}
    return json.dumps(told).encode()


# --- sending ---


def send(delivery: WebhookDelivery) -> None:
    """Send what was taken, and note what came of it."""
    body = body_of(delivery)
    if body is None:
        delivery.drop()
        return
    endpoint = delivery.endpoint
    connection.close()  # none is held while somebody else takes their time
    try:
        headers = signed(body, f"msg_{delivery.delivery_id.hex}", endpoint.secret)
        post(endpoint.url, body, headers, public_only=not settings.WEBHOOKS.private_addresses)
    except NotReceived as error:
        delivery.note_failure(str(error))
        logger.warning("a webhook did not arrive", webhook=endpoint.pk, why=str(error), attempts=delivery.attempts)
    else:
        delivery.note_sent()


def serve(ending: threading.Event) -> None:
    """Send until asked to end."""
    free = threading.Semaphore(SENDERS)
    while not ending.is_set():
        if free.acquire(timeout=LOOK) and (pause := _begin_next(free)):
            free.release()
            connection.close()
            ending.wait(pause)


def _begin_next(free: threading.Semaphore) -> float:
    """Have what is due longest sent beside; return the seconds to wait where nothing is, or nothing can be."""
    try:
        delivery = WebhookDelivery.objects.take_next()
        if delivery is None:
            return LOOK
        threading.Thread(target=_send_beside, args=[delivery, free], name="webhook", daemon=True).start()
    except DatabaseError:
        return AWAY
    except Exception as error:
        logger.exception("no webhook could be taken", error=type(error).__name__)
        return AWAY
    return 0.0


def _send_beside(delivery: WebhookDelivery, free: threading.Semaphore) -> None:
    """Send in a thread of its own; what fails otherwise than at the receiver is sent again after its lease."""
    try:
        send(delivery)
    except Exception as error:
        logger.exception("a webhook could not be sent", error=type(error).__name__)
    finally:
        connection.close()
        free.release()
