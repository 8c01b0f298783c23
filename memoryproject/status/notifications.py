"""Notifications of a change of the site's state: by a webhook, a command, or both.

The queue is in memory, because the database may be down. A failed attempt is retried with increasing pauses, until it
succeeds or the next change replaces it. A process may die before it records a success, so a receiver may be notified
twice.
"""

import base64
import hashlib
import hmac
import json
import os
import shlex
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

import structlog
from django.conf import settings

from memoryproject.conf import variables
from memoryproject.settings import CONF
from memoryproject.status.site_state import Change
from memoryproject.status.webhooks import NotReceived, post

SECONDS = 10.0  # timeout of a command in seconds
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0  # seconds
SIGNATURE = "X-Memory-Signature"

logger = structlog.get_logger(__name__)


class Channel(ABC):
    @abstractmethod
    def send(self, change: Change) -> None:
        """Make one attempt to report a change. Raise `NotReceived` if it fails."""


class Webhook(Channel):
    """Posts the change as JSON, signed if there is a secret."""

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret

    def send(self, change: Change) -> None:
        """Post the change, signed like other webhooks, and with a second signature of the body alone."""
        body = json.dumps(change.as_dict()).encode()
        message_id = f"state_{change.state}_{change.since:%Y%m%dT%H%M%S%f}"
        key = _key(self._secret) if self._secret else None
        digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {SIGNATURE: f"sha256={digest}"} if self._secret else None
        try:
            post(self._url, body, message_id, key, headers=headers)
        except NotReceived as error:
            raise NotReceived(f"NOTIFY__WEBHOOK_URL {error}.") from None


def _key(secret: str) -> bytes:
    """Return the key in a secret. Standard Webhooks encodes it in Base64 after `whsec_`."""
    encoded = secret.removeprefix("whsec_")
    with suppress(ValueError):  # any other text is the key itself
        if encoded != secret:
            return base64.b64decode(encoded, validate=True)
    return secret.encode()


class Command(Channel):
    """A program that gets the change in environment variables, but not the platform's settings."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def send(self, change: Change) -> None:
        try:
            ended = subprocess.run(  # noqa: S603 (the operator's own program)
                self._command,
                env=_environment(change),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise NotReceived(f"NOTIFY__COMMAND did not finish within {SECONDS:.0f} s.") from None
        except OSError as error:
            raise NotReceived(f"NOTIFY__COMMAND can't be run: {error.strerror}.") from None
        if ended.returncode:
            raise NotReceived(f"NOTIFY__COMMAND exited with status {ended.returncode}.")


def _environment(change: Change) -> dict[str, str]:
    ours = {name for name, _, _ in variables(type(CONF))}
    facts = change.as_dict()
    own = {
        "MEMORY_STATE": facts["state"],
        "MEMORY_PREVIOUS_STATE": facts["previous"],
        "MEMORY_SINCE": facts["since"],
        "MEMORY_REASONS": "\n".join(facts["reasons"]),
    }
    return {name: value for name, value in os.environ.items() if name not in ours} | own


def channels() -> list[Channel]:
    conf = settings.NOTIFY
    webhook = [Webhook(conf.webhook_url, conf.webhook_secret.get_secret_value())] if conf.webhook_url else []
    return [*webhook, *([Command(conf.command)] if conf.command else [])]


class Delivery:
    """The attempts to report one change, through the channels that have not yet succeeded."""

    def __init__(self, change: Change, channels: list[Channel], clock: Callable[[], float] = time.monotonic) -> None:
        self.change = change
        self._waiting = list(channels)
        self._clock = clock
        self._due_at, self._pause = 0.0, FIRST_PAUSE

    @property
    def is_done(self) -> bool:
        return not self._waiting

    def attempt(self) -> None:
        if self.is_done or self._clock() < self._due_at:
            return
        self._waiting = [channel for channel in self._waiting if not self._send(channel)]
        self._due_at = self._clock() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _send(self, channel: Channel) -> bool:
        try:
            channel.send(self.change)
        except NotReceived as error:
            logger.warning("no notification about the site's state was delivered", why=str(error))
            return False
        return True
