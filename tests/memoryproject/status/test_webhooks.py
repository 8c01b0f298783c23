"""Webhooks: the events that other systems receive, their signatures and retries."""

import base64
import hashlib
import hmac
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.conf import WebhookSettings
from memoryproject.status import webhooks
from memoryproject.status.webhooks import SENDERS, NotReceived, post, send, serve
from moments_app.models import Circuit, Job, WebhookDelivery, WebhookEndpoint
from moments_app.models.webhook import LEASE, RETRIED_FOR, WebhookEvent
from sessions_app.database import deferred
from sessions_app.models import Application, Event, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.support.first_steps import python_in
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import list_url, page
from tests.support.receiver import Receiver
from tests.support.transcript import talk
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOKS = WebhookSettings(private_addresses=True)
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def webhook(receiver: Receiver) -> WebhookEndpoint:
    """A webhook for every type of event."""
    return WebhookEndpoint.objects.create(name="Billing", url=receiver.url, events=WebhookEvent.values)


def send_all() -> None:
    while delivery := WebhookDelivery.objects.claim_next():
        send(delivery)


def pass_time(seconds: float) -> None:
    """Move waiting deliveries and endpoints that many seconds back."""
    gone = timedelta(seconds=seconds)
    for delivery in WebhookDelivery.objects.waiting():
        WebhookDelivery.objects.filter(pk=delivery.pk).update(due_at=delivery.due_at and delivery.due_at - gone)
    for endpoint in WebhookEndpoint.objects.exclude(waits_until=None):
        WebhookEndpoint.objects.filter(pk=endpoint.pk).update(
            waits_until=endpoint.waits_until and endpoint.waits_until - gone
        )


def happen(type: str = "user_erased", **fields: object) -> Event:
    return Event.objects.create(type=type, actor="test", payload={"erasure_id": "e1"}, **fields)


# --- events ---


def test_an_event_about_new_moments_has_their_keys_and_no_text(
    ada: UserProfile, webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    session = talk(ada, 12)
    build(session, lag=0)
    send_all()
    [told] = receiver.told
    keys = Event.objects.get(type="moments_built").payload["moment_keys"]
    assert told["type"] == "moment.made"
    assert told["data"] == {
        "user_id": "ada",
        "session_id": session.session_id,
        "moment_keys": keys,
        "first_sequence": 0,
        "last_sequence": 11,
    }


@pytest.mark.slow
def test_failed_jobs_unavailable_providers_and_erasures_are_sent(
    ada: UserProfile, webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    session = talk(ada, 2)
    job = Job.objects.request("build_moments", session, requested_by="test")
    taken = Job.objects.claim(job.job_id)
    assert taken
    taken.fail("No such prompt.")
    send_all()
    Circuit.objects.create(engine="openai:gpt", work="text")._log("circuit_opened", "request")
    erased = erase_user("ada", application=DEFAULT, actor="key:test")
    send_all()
    whose = {"user_id": "ada", "session_id": session.session_id}
    assert [(told["type"], told["data"]) for told in receiver.told] == [
        ("job.failed", whose | {"job_id": str(job.job_id), "process": "build_moments"}),
        ("provider.down", {"engine": "openai:gpt", "work": "text"}),
        ("person.erased", {"erasure_id": str(erased.erasure_id)}),
    ]


@pytest.mark.slow
def test_row_11_waiting_events_of_an_erased_person_are_not_sent(
    ada: UserProfile, webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    build(talk(ada, 12), lag=0)
    assert WebhookDelivery.objects.waiting().count() == 1
    erase_user("ada", application=DEFAULT, actor="key:test")
    send_all()
    assert [told["type"] for told in receiver.told] == ["person.erased"]
    assert not re.search(rb"\bada\b", b"".join(receiver.bodies))  # an id may contain the letters


def test_an_endpoint_receives_its_events_of_its_application(receiver: Receiver) -> None:
    other = Application.objects.create(name="other")
    events = {"events": ["user_erased"], "url": receiver.url}
    WebhookEndpoint.objects.create(name="own", **events)
    WebhookEndpoint.objects.create(name="others", application=other, **events)
    WebhookEndpoint.objects.create(name="off", is_active=False, **events)
    WebhookEndpoint.objects.create(name="something else", events=["job_failed"], url=receiver.url)
    happen(application_id=DEFAULT)
    assert [delivery.endpoint.name for delivery in WebhookDelivery.objects.all()] == ["own"]
    stranger = UserProfile.objects.create(application=other, user_id="stranger")
    happen(user_pk=stranger.pk)
    assert WebhookDelivery.objects.latest("id").endpoint.name == "others"
    happen()  # a site-wide event
    assert WebhookDelivery.objects.count() == 4


def test_a_rolled_back_event_is_not_sent(webhook: WebhookEndpoint) -> None:
    with transaction.atomic():
        happen()
        transaction.set_rollback(True)
    assert not WebhookDelivery.objects.exists()


# --- delivery ---


def test_a_receiver_can_verify_the_signature_with_the_secret(webhook: WebhookEndpoint, receiver: Receiver) -> None:
    happen()
    send_all()
    headers = {name.lower(): value for name, value in receiver.headers[0].items()}
    key = base64.b64decode(webhook.shown_secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + receiver.bodies[0]
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert abs(int(headers["webhook-timestamp"]) - timezone.now().timestamp()) < 300
    assert webhook.secret not in bytes(WebhookEndpoint.objects.get().sealed_secret)
    page_says: dict[str, Any] = {}
    exec(python_in("webhooks.md")[0], page_says)
    assert page_says["verified"](webhook.shown_secret, headers, receiver.bodies[0])["type"] == "person.erased"
    with pytest.raises(ValueError, match="signature is wrong"):
        page_says["verified"](webhook.shown_secret, headers, receiver.bodies[0] + b" ")


def test_a_receiver_that_was_down_gets_each_event_later_under_the_same_id(
    webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    receiver.statuses = [500] * 4
    happen()
    happen()
    for _ in range(6):
        send_all()
        pass_time(60)
    delivered = [headers["webhook-id"] for headers in receiver.headers]
    assert len(delivered) == 4 + 2 and len(set(delivered)) == 2
    assert [delivery.state for delivery in WebhookDelivery.objects.all()] == ["sent", "sent"]
    webhook.refresh_from_db()
    assert (webhook.failures, webhook.waits_until) == (0, None)


def test_a_failing_endpoint_does_not_delay_others(webhook: WebhookEndpoint, receiver: Receiver) -> None:
    WebhookEndpoint.objects.filter(pk=webhook.pk).update(url="http://127.0.0.1:1/")
    for _ in range(3):
        happen()
    send_all()
    assert WebhookDelivery.objects.filter(attempts=1).count() == 1  # the others wait for it
    WebhookEndpoint.objects.create(name="well", url=receiver.url, events=["user_erased"])
    happen()
    send_all()
    assert len(receiver.bodies) == 1


def test_an_undelivered_event_fails_eventually_and_can_be_resent(webhook: WebhookEndpoint, receiver: Receiver) -> None:
    receiver.statuses = [500]
    happen()
    WebhookDelivery.objects.update(queued_at=timezone.now() - RETRIED_FOR)
    send_all()
    [delivery] = WebhookDelivery.objects.all()
    assert (delivery.state, delivery.error) == ("failed", "answered with status 500")
    root = operator()
    listed, selected = list_url(WebhookDelivery), {"action": "resend", "_selected_action": [delivery.pk]}
    assert "Resend these deliveries" in root.post(listed, selected).content.decode()
    assert not WebhookDelivery.objects.exclude(sent_at=None).exists() and len(receiver.bodies) == 1
    root.post(reverse("admin:moments_app_webhookdelivery_resend", args=[delivery.pk]))
    send_all()
    delivery.refresh_from_db()
    assert delivery.state == "sent" and len(receiver.bodies) == 2


def test_the_delivery_of_a_dead_sender_is_taken_over_after_its_lease(
    webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    happen()
    assert WebhookDelivery.objects.claim_next()
    send_all()
    assert not receiver.bodies
    pass_time(LEASE.total_seconds())
    send_all()
    assert len(receiver.bodies) == 1


@pytest.fixture
def _woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send notifications from here as a command does, and serve only when woken."""
    monkeypatch.setattr(deferred, "sends_from_thread", lambda: False)
    monkeypatch.setattr(webhooks, "IDLE", 10 * TIMEOUT)
    monkeypatch.setattr("moments_app.models.webhook.LEASE", timedelta(days=1))


@contextmanager
def serving() -> Iterator[None]:
    """Serve deliveries in a thread during the block, and wait for all of them before it ends."""
    ending = threading.Event()
    thread = threading.Thread(target=serve, args=[ending])
    thread.start()
    try:
        yield
        wait_until(lambda: not WebhookDelivery.objects.waiting().exists())
    finally:
        ending.set()
        deferred.wake(deferred.Channel.WEBHOOKS)
        thread.join()


def _has_received(receiver: Receiver, count: int) -> bool:
    return len(receiver.bodies) >= count


@pytest.mark.usefixtures("_woken")
def test_the_sender_thread_is_woken_by_new_events(webhook: WebhookEndpoint, receiver: Receiver) -> None:
    with serving():
        for number in range(3):
            happen()
            wait_until(partial(_has_received, receiver, number + 1))


@pytest.mark.usefixtures("_woken")
def test_a_slow_receiver_gets_one_delivery_at_a_time_and_does_not_delay_others(
    webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    with Receiver() as slow:
        slow.goes.clear()
        WebhookEndpoint.objects.filter(pk=webhook.pk).update(url=slow.url)
        for _ in range(SENDERS + 1):
            happen()
        WebhookEndpoint.objects.create(name="quick", url=receiver.url, events=["user_erased"])
        happen()
        with serving():
            wait_until(lambda: bool(slow.bodies and receiver.bodies))
            assert len(slow.bodies) == 1
            assert not WebhookDelivery.objects.exclude(error="").exists()  # the slow delivery didn't time out
            slow.goes.set()
        assert len(slow.bodies) == SENDERS + 2


# --- allowed addresses ---


def test_row_20_webhooks_are_not_sent_to_private_addresses_unless_a_setting_allows_it(
    webhook: WebhookEndpoint, receiver: Receiver, settings: Settings
) -> None:
    settings.WEBHOOKS = WebhookSettings()
    happen()
    send_all()
    assert receiver.bodies == []
    assert "WEBHOOKS__PRIVATE_ADDRESSES" in WebhookDelivery.objects.get().error
    with pytest.raises(NotReceived, match="needs a public address, unless WEBHOOKS__PRIVATE_ADDRESSES is true"):
        post(receiver.url.replace("http://127.0.0.1", "https://localhost"), b"{}", "msg_1", b"", public_only=True)
    assert receiver.bodies == []


def test_row_20_the_connection_uses_the_checked_address(monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = "93.184.216.34", "127.0.0.1"
    answers = iter([[public], [private], [private, public]])
    connected: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        addresses = next(answers) if host == "rebinding.example" else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    for expected in ([public], [public], [public, public]):
        with pytest.raises(NotReceived):
            post("https://rebinding.example/hook", b"{}", "msg_1", b"", public_only=True)
        assert connected == expected


# --- in the admin ---


def test_an_operator_can_add_a_webhook_and_see_its_secret_and_deliveries(receiver: Receiver) -> None:
    root = operator()
    entered = {"name": "Billing", "url": receiver.url, "events": ["user_erased", "moments_built"], "is_active": "on"}
    root.post(reverse("admin:moments_app_webhookendpoint_add"), entered)
    [webhook] = WebhookEndpoint.objects.all()
    assert webhook.events == ["user_erased", "moments_built"]
    happen()
    shown = page(root, reverse("admin:moments_app_webhookendpoint_change", args=[webhook.pk]))
    assert webhook.shown_secret in shown and "person.erased" in shown
    refused = root.post(reverse("admin:moments_app_webhookendpoint_add"), entered | {"url": "ftp://x"})
    assert "starts with https://" in refused.content.decode()
    assert "person.erased" in page(root, reverse("admin:moments_app_webhookdelivery_changelist"))


def test_waiting_events_are_sent_when_an_operator_corrects_the_address(
    webhook: WebhookEndpoint, receiver: Receiver
) -> None:
    root, page_of_webhook = operator(), reverse("admin:moments_app_webhookendpoint_change", args=[webhook.pk])
    entered = {"name": "Billing", "url": receiver.url, "events": ["user_erased"], "is_active": "on"}
    root.post(page_of_webhook, entered | {"url": "http://127.0.0.1:9/"})
    happen()
    send_all()
    assert receiver.bodies == []
    root.post(page_of_webhook, entered)
    send_all()
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize(
    "url",
    ["https://billing example.com/hook", "https://example.com/a hook", "https://:443/", "https://example.com:http/",
     "https://example.com:99999/", "https://[::1"],
)  # fmt: skip
def test_an_invalid_url_is_rejected(url: str) -> None:
    entered = {"name": "Billing", "url": url, "events": ["user_erased"], "is_active": "on"}
    refused = operator().post(reverse("admin:moments_app_webhookendpoint_add"), entered)
    assert "Enter a URL with a host" in refused.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_a_url_without_tls_is_rejected_unless_a_setting_allows_it(settings: Settings) -> None:
    entered = {"name": "Billing", "url": "http://example.com/hook", "events": ["user_erased"], "is_active": "on"}
    root, add = operator(), reverse("admin:moments_app_webhookendpoint_add")
    assert "WEBHOOKS__PRIVATE_ADDRESSES" in root.post(add, entered).content.decode()
    assert not WebhookEndpoint.objects.exists()
    settings.WEBHOOKS = WebhookSettings(private_addresses=True)
    root.post(add, entered)
    assert WebhookEndpoint.objects.get().url == "http://example.com/hook"


@pytest.mark.parametrize("group", ["viewers", "editors"])
def test_row_20_operators_who_may_not_edit_webhooks_do_not_see_them(webhook: WebhookEndpoint, group: str) -> None:
    client = operator(group=group)
    for name in ("changelist", "add"):
        assert client.get(reverse(f"admin:moments_app_webhookendpoint_{name}")).status_code == 403
