"""Notifications of changes of the site's state."""

import base64
import hashlib
import hmac
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.conf import NotifySettings
from memoryproject.status import notifications
from memoryproject.status.notifications import Channel, Command, Delivery, Webhook, channels
from memoryproject.status.site_state import Change, State
from memoryproject.status.webhooks import NotReceived
from tests.support.receiver import Receiver

CHANGE = Change(State.DOWN, "up", datetime(2026, 3, 2, 9, 30, tzinfo=UTC), ["It hangs.", "Nobody knows why."])
FACTS = {
    "state": "down",
    "previous": "up",
    "since": "2026-03-02T09:30:00.000+00:00",
    "reasons": ["It hangs.", "Nobody knows why."],
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_webhook_receives_a_signed_change() -> None:
    with Receiver() as receiver:
        Webhook(receiver.url, "s3cret").send(CHANGE)
    assert receiver.told == [FACTS]
    digest = hmac.new(b"s3cret", receiver.bodies[0], hashlib.sha256).hexdigest()
    assert receiver.headers[0]["X-Memory-Signature"] == f"sha256={digest}"


@pytest.mark.parametrize(("secret", "key"), [("s3cret", b"s3cret"), ("whsec_czNj", b"s3c"), ("whsec_?", b"whsec_?")])
def test_a_webhook_has_standard_signature_headers_for_any_secret(secret: str, key: bytes) -> None:
    with Receiver() as receiver:
        Webhook(receiver.url, secret).send(CHANGE)
    headers = {name.lower(): value for name, value in receiver.headers[0].items()}
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + receiver.bodies[0]
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def test_a_webhook_without_a_secret_is_not_signed() -> None:
    with Receiver() as receiver:
        Webhook(receiver.url, "").send(CHANGE)
    assert "X-Memory-Signature" not in receiver.headers[0]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_row_20_an_error_status_is_a_failure_and_redirects_are_not_followed(status: int) -> None:
    with Receiver() as receiver:
        receiver.statuses = [status]
        with pytest.raises(NotReceived, match=f"answered with status {status}") as raised:
            Webhook(receiver.url, "s3cret").send(CHANGE)
    assert len(receiver.bodies) == 1
    assert "127.0.0.1" not in str(raised.value) and "s3cret" not in str(raised.value)


def test_row_20_an_unreachable_address_is_not_quoted() -> None:
    with pytest.raises(NotReceived, match=r"NOTIFY__WEBHOOK_URL can't be reached \(ConnectError\)"):
        Webhook("http://127.0.0.1:1/secret-path", "").send(CHANGE)


@pytest.mark.slow
def test_a_command_gets_the_change_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE__API_KEY", "sk-marked")
    told = tmp_path / "told"
    Command(f"sh -c 'env > {told}'").send(CHANGE)
    printed = told.read_text()
    assert "MEMORY_STATE=down\n" in printed and "MEMORY_PREVIOUS_STATE=up\n" in printed
    assert "MEMORY_REASONS=It hangs.\nNobody knows why.\n" in printed
    assert f"PATH={os.environ['PATH']}" in printed
    assert "sk-marked" not in printed


@pytest.mark.slow
def test_a_command_that_fails_hangs_or_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "SECONDS", 0.2)
    for command, why in {"false": "status 1", "sleep 60": "did not finish", "/nowhere/x; echo": "No such file"}.items():
        with pytest.raises(NotReceived, match=why):
            Command(command).send(CHANGE)


def test_only_failed_channels_are_retried_with_growing_delays() -> None:
    clock = Clock()
    with Receiver() as well, Receiver() as ill:
        ill.statuses = [500] * 3
        ways: list[Channel] = [Webhook(well.url, ""), Webhook(ill.url, "")]
        delivery = Delivery(CHANGE, ways, clock)
        for clock.now in range(60):
            delivery.attempt()
        assert (len(well.bodies), len(ill.bodies)) == (1, 4)  # after 0, 5, 15 and 35 seconds
        assert delivery.is_done


def test_channels_are_read_from_the_settings(settings: Settings) -> None:
    assert channels() == []
    settings.NOTIFY = NotifySettings(webhook_url="http://x/", webhook_secret=SecretStr("s"), command="true")
    assert [type(channel) for channel in channels()] == [Webhook, Command]
