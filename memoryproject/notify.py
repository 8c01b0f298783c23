"""Telling of a change of the site's state: by a webhook, a command, or both.

Where to is said by settings alone. An attempt is short; one that fails comes again, ever later, until it succeeds or
the next change takes its place. Whoever is told may be told twice, for a process may die between telling and noting it.
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
from memoryproject.site_state import Change
from memoryproject.webhooks import NotReceived, post, signed

SECONDS = 10.0  # for a command
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0  # seconds
SIGNATURE = "X-Memory-Signature"

logger = structlog.get_logger(__name__)


class NotTold(Exception):
    """The attempt came to nothing; the message says why, without an address."""


class Channel(ABC):
    """A way to tell of a change."""

    @abstractmethod
    def tell(self, change: Change) -> None:
        """Tell of a change.

        Raises:
            NotTold: it didn't arrive.
        """


class Webhook(Channel):
    """A POST of the facts as JSON.

    Args:
        url: where to.
        secret: signs the body; blank for none.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret

    def tell(self, change: Change) -> None:
        """Post the facts. A redirect is not followed."""
        body = json.dumps(change.facts()).encode()
        try:
            post(self._url, body, self._headers(change, body))
        except NotReceived as error:
            raise NotTold(f"NOTIFY__WEBHOOK_URL {error}.") from None

    def _headers(self, change: Change, body: bytes) -> dict[str, str]:
        """Sign as other webhooks are signed, and by a header of the body alone."""
        if not self._secret:
            return {}
        digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        message_id = f"state_{change.state}_{change.since:%Y%m%dT%H%M%S%f}"
        return signed(body, message_id, _key(self._secret)) | {SIGNATURE: f"sha256={digest}"}


def _key(secret: str) -> bytes:
    """Return the key that a secret stands for; as Standard Webhooks writes it, it is encoded."""
    encoded = secret.removeprefix("whsec_")
    with suppress(ValueError):  # whatever else it is, it is a key by itself
        if encoded != secret:
            return base64.b64decode(encoded, validate=True)
    return secret.encode()


class Command(Channel):
    """A program that gets the facts in its environment, without the platform's settings.

    Args:
        command: program and arguments, as a shell would split them.
    """

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def tell(self, change: Change) -> None:
        """Run it; it has to end with status 0."""
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
            raise NotTold(f"NOTIFY__COMMAND did not end within {SECONDS:.0f} s.") from None
        except OSError as error:
            raise NotTold(f"NOTIFY__COMMAND can't be run: {error.strerror}.") from None
        if ended.returncode:
            raise NotTold(f"NOTIFY__COMMAND ended with status {ended.returncode}.")


def _environment(change: Change) -> dict[str, str]:
    ours = {name for name, _, _ in variables(type(CONF))}
    facts = change.facts()
    told = {
        "MEMORY_STATE": facts["state"],
        "MEMORY_PREVIOUS_STATE": facts["previous"],
        "MEMORY_SINCE": facts["since"],
        "MEMORY_REASONS": "\n".join(facts["reasons"]),
    }
    return {name: value for name, value in os.environ.items() if name not in ours} | told


def channels() -> list[Channel]:
    """Return the ways that are set."""
    conf = settings.NOTIFY
    webhook = [Webhook(conf.webhook_url, conf.webhook_secret.get_secret_value())] if conf.webhook_url else []
    return [*webhook, *([Command(conf.command)] if conf.command else [])]


class Delivery:
    """Telling of one change, attempt by attempt.

    Args:
        change: that is told of.
        channels: that it isn't told by yet.
        clock: seconds that go on.
    """

    def __init__(self, change: Change, channels: list[Channel], clock: Callable[[], float] = time.monotonic) -> None:
        self.change = change
        self._waiting = list(channels)
        self._clock = clock
        self._due_at, self._pause = 0.0, FIRST_PAUSE

    @property
    def is_done(self) -> bool:
        """True when everybody was told."""
        return not self._waiting

    def attempt(self) -> None:
        """Tell those that are not told yet, when it is time to."""
        if self.is_done or self._clock() < self._due_at:
            return
        self._waiting = [channel for channel in self._waiting if not self._told(channel)]
        self._due_at = self._clock() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _told(self, channel: Channel) -> bool:
        try:
            channel.tell(self.change)
        except NotTold as error:
            logger.warning("not told of the site's state", why=str(error))
            return False
        return True
