"""The watchdog: the process that monitors the state of the site and sends a notification when it changes.

It checks the state every few seconds, even if the database hangs. A new state counts after `CONFIRMED_AFTER` seconds.
Then the first watchdog that sees it writes it into the event log and sends the notification. While the database is
down, each watchdog sends its own notification, and logs the change later.

Two threads of this process queue scheduled tasks and send webhooks. If the site has an embedded database and the parent
process dies, the watchdog stops the database before it exits.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone
from pydantic import SecretStr

from memoryproject import telemetry
from memoryproject.database import embedded
from memoryproject.database.clocks import checked_every_minute
from memoryproject.database.timeouts import DatabaseUnavailable, connected, database
from memoryproject.schedules import correct_next_runs
from memoryproject.status import webhooks
from memoryproject.status.checks import Verdict, judge
from memoryproject.status.notifications import Channel, Delivery, channels
from memoryproject.status.site_state import Change, State, last_change, record_refused_providers
from moments_app.engines.endpoint import Endpoint
from moments_app.engines.interface import EngineError
from moments_app.jobs.worker import watch_jobs
from sessions_app.clock import correct_times, database_now, report
from sessions_app.retention import archive_files

CONFIRMED_AFTER = 15.0  # how long a state must last; a brief failure causes no notification
CHECK_SECONDS = 5.0  # seconds between two checks while the state changes
IDLE_CHECK_SECONDS = 30.0  # seconds between two checks otherwise
TAKEOVER_SECONDS = 60.0  # age of a change after which any watchdog may send its notification
RECHECK_SECONDS = 300.0  # seconds between checks of providers while one fails
CORRECTED_EVERY = 60.0  # seconds between corrections of times

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _PendingState:
    """A state that has not lasted long enough to count."""

    state: State
    since: datetime  # by the database's clock
    seen_at: float  # by the watchdog's monotonic clock


class Watchdog:
    """Monitors the state of the site. A state counts once it has lasted `after` seconds."""

    def __init__(self, channels: list[Channel], *, after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._channels, self._after, self._clock = channels, after, clock
        self._known: Change | None = None  # the last change, even if it is not logged yet
        self._pending: _PendingState | None = None
        self._unrecorded: Change | None = None
        self._delivery: Delivery | None = None
        self._finished: int | None = None  # primary key of the last change whose notifications are complete
        self._clock_offset = timedelta(0)  # how far this host's clock is ahead of the database's

    def check(self) -> None:
        with suppress(DatabaseUnavailable):
            with database():
                self._clock_offset = timezone.now() - database_now()
                self._synchronize()
                self._finish_notifications()
            self._unrecorded = None  # the change is committed only now
        verdict = _verdict()
        if self._is_confirmed(verdict.state):
            self._record_change(verdict)
        if self._delivery:
            self._delivery.attempt()

    @property
    def pause(self) -> float:
        return CHECK_SECONDS if self._pending or self._unrecorded or self._delivery else IDLE_CHECK_SECONDS

    def _synchronize(self) -> None:
        """Log a change that could not be logged before, and read changes logged by other watchdogs."""
        if self._unrecorded:
            self._known = self._unrecorded.record() or last_change()
        last = last_change()
        if last and (self._known is None or last.pk != self._known.pk):
            self._known, self._delivery = last, None

    def _finish_notifications(self) -> None:
        """Record that the last change's notifications are complete, or take them over from a watchdog that died."""
        known = self._known
        if known is None or known.pk == self._finished:
            return
        if self._delivery and self._delivery.is_done:
            known.record_notified()
        elif known.was_notified or not self._needs_notification(known):
            self._delivery = None
        else:
            if self._delivery is None and known.age(self._now()) > TAKEOVER_SECONDS:
                self._delivery = Delivery(known, self._channels, self._clock)
            return
        self._finished = known.pk

    def _needs_notification(self, change: Change) -> bool:
        return bool(self._channels) and change.is_news

    def _is_confirmed(self, state: State) -> bool:
        if self._known and self._known.state == state:
            self._pending = None
            return False
        if self._pending is None or self._pending.state != state:
            self._pending = _PendingState(state, self._now(), self._clock())
        return self._clock() - self._pending.seen_at >= self._after

    def _now(self) -> datetime:
        return timezone.now() - self._clock_offset

    def _record_change(self, verdict: Verdict) -> None:
        assert self._pending is not None  # `_is_confirmed` has set it
        previous = str(self._known.state) if self._known else ""
        change = Change(verdict.state, previous, self._pending.since, verdict.reasons)
        self._pending = None
        try:
            with database():
                recorded = change.record()
            if recorded is None:
                return  # another watchdog has logged it, and sends the notification
        except DatabaseUnavailable:
            recorded = self._unrecorded = change
        self._known = recorded
        needs_notification = self._needs_notification(recorded)
        self._delivery = Delivery(recorded, self._channels, self._clock) if needs_notification else None
        log = logger.warning if recorded.is_news else logger.info
        log("the state of the site changed", **recorded.as_dict())


def _verdict() -> Verdict:
    try:
        with connected():
            return judge()
    except DatabaseUnavailable as away:
        return Verdict(State.DOWN, [str(away)])


class ProviderChecks:
    """Checks the providers in a separate thread, and repeats the check while one fails."""

    def __init__(self) -> None:
        self._results: deque[list[str]] = deque()  # refusals of each check that are not recorded yet, oldest first
        self._next_check_at: float | None = 0.0

    def check(self) -> None:
        if self._next_check_at is not None and time.monotonic() >= self._next_check_at:
            self._next_check_at = None
            threading.Thread(target=self._ask, name="providers", daemon=True).start()
        with suppress(DatabaseUnavailable):
            while self._results:
                with database():
                    record_refused_providers(self._results[0])
                self._results.popleft()

    def _ask(self) -> None:
        refused = refusals()
        for refusal in refused:
            logger.error("a provider can't be used", why=refusal)
        self._results.append(refused)
        self._next_check_at = time.monotonic() + RECHECK_SECONDS if refused else None


class ClockCorrections:
    def __init__(self) -> None:
        self._next_at = 0.0

    def check(self) -> None:
        """Run the corrections every `CORRECTED_EVERY` seconds. If the database is down, retry at the next call."""
        if time.monotonic() < self._next_at:
            return
        with suppress(DatabaseUnavailable), database():
            correct_times(checked_every_minute())
            report(correct_next_runs())
            self._next_at = time.monotonic() + CORRECTED_EVERY


def serve(*, stops_database: bool = False) -> None:
    """Watch until asked to end, or until the parent dies.

    Args:
        stops_database: Whether to stop the embedded database if the parent dies. Its data directory stays locked until
            then, because this process has inherited the lock.
    """
    parent, ending = os.getppid(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    watch, providers = Watchdog(channels(), after=CONFIRMED_AFTER), ProviderChecks()
    corrections = ClockCorrections()
    for name, thread in (("clock", watch_jobs), ("webhooks", webhooks.serve)):
        threading.Thread(target=_run_or_exit, args=[name, thread, ending], name=name, daemon=True).start()
    while not ending.is_set() and os.getppid() == parent:
        corrections.check()
        providers.check()
        watch.check()
        ending.wait(watch.pause)
    if stops_database and os.getppid() != parent:
        embedded.stop(settings.EMBEDDED_DATABASE_DIR)


def _run_or_exit(name: str, serve: Callable[[threading.Event], None], ending: threading.Event) -> None:
    """Serve in a thread. If that fails, end the process, which is then restarted."""
    try:
        serve(ending)
    except Exception as error:
        logger.exception("a thread of the watchdog failed", thread=name, error=type(error).__name__)
        telemetry.stop()
        os._exit(1)


# --- the check of the providers' keys, before the first job needs them ---

SECONDS = 10.0
ANSWER_BYTES = 10_000_000  # large, because some providers list thousands of models
PURPOSE = "check"
SETTING_OF_ERROR = {"credential": "API_KEY", "address": "BASE_URL", "unavailable": "BASE_URL", "quota": "API_KEY"}
CHAT = "/chat/completions", {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
EMBEDDING = "/embeddings", {"input": ["Hello."], "encoding_format": "float"}
RERANK = "/rerank", {"query": "Hello.", "documents": ["Hello."]}


@dataclass(frozen=True)
class Provider:
    """An endpoint in the settings. `smallest` is the path and body of the cheapest possible call, if there is one."""

    prefix: str
    url: str
    key: SecretStr
    model: str = ""
    smallest: tuple[str, dict[str, Any]] | None = None

    def refusal(self) -> str:
        """Return an error message if the URL is wrong or the provider rejects the key, otherwise a blank string."""
        error = self._ask("/models", None)
        if error and error.kind in ("address", "rejected"):  # some providers have no list of models
            error = self._ask(*self.smallest) if self.smallest else None
        if error is None or error.kind not in SETTING_OF_ERROR:
            return ""
        return f"{error} Check {self.prefix}{SETTING_OF_ERROR[error.kind]}."

    def _ask(self, path: str, body: dict[str, Any] | None) -> EngineError | None:
        endpoint = Endpoint(
            base_url=self.url or None,
            path=path,
            api_key=self.key.get_secret_value(),
            model=self.model,
            max_response_bytes=ANSWER_BYTES,
            record=lambda _: None,
        )
        try:
            endpoint.call(PURPOSE, body, seconds=SECONDS, read=lambda answer: answer, refuses=lambda _: False)
        except EngineError as error:
            return error
        return None


def providers() -> Iterator[Provider]:
    if settings.ENGINE.uses_model:
        model = settings.ENGINE.model
        yield Provider("ENGINE__", settings.ENGINE.base_url, settings.ENGINE.api_key, model, CHAT)
    if settings.EMBEDDING.has_endpoint:
        conf = settings.EMBEDDING
        yield Provider("EMBEDDING__", conf.base_url, conf.api_key, conf.model, EMBEDDING)
    if settings.RERANK.base_url:
        rerank = settings.RERANK
        yield Provider("RERANK__", rerank.base_url, rerank.api_key, rerank.model, RERANK)
    if settings.CHAT.upstream_base_url:
        yield Provider("CHAT__UPSTREAM_", settings.CHAT.upstream_base_url, settings.CHAT.upstream_api_key, "upstream")


def refusals() -> list[str]:
    """Check each provider. Return a sentence for each that fails.

    A check requests the provider's list of models, which is free. If there is no such list, it makes the cheapest
    possible call. A provider that is overloaded or returns a server error still passes. For a remote storage of
    archives, the check writes a small file and reads it back.
    """
    answers = [provider.refusal() for provider in providers()]
    answers.append(_archive_refusal())
    return [answer for answer in answers if answer]


def _archive_refusal() -> str:
    conf = settings.RETENTION
    refusal = archive_files.storage_error() if conf.is_elsewhere and conf.action == "archive" else ""
    return refusal and f"{refusal} Check {conf.storage_setting}."
