"""Shared fixtures: people, keys, a client, model servers, and the database of the run."""

import functools
import gc
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import hypothesis
import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import Client, TransactionTestCase
from django.test.utils import override_settings
from django_q.conf import Conf
from pydantic import SecretStr
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from memoryproject import extras
from memoryproject.conf import (
    ChatSettings,
    EmbeddingSettings,
    LimitSettings,
    MemoryFormationSettings,
    RollingSummarySettings,
)
from memoryproject.database import embedded
from moments_app.context import assemble, receipts
from moments_app.engines import embeddings
from moments_app.interfaces.chat import rounds
from moments_app.turns import platform_text
from sessions_app.api import authentication
from sessions_app.database import deferred
from sessions_app.models import ApiKey, UserProfile, daily_limit
from sessions_app.process_cache import ProcessCache
from tests.support.api import Api
from tests.support.fresh_database import FreshDatabase
from tests.support.kept_connection import KeptConnection
from tests.support.kept_rows import KeptRows
from tests.support.migrated import migrated
from tests.support.openai_server import OpenAIServer, content
from tests.support.operator import operator
from tests.support.waiting import TIMEOUT

os.environ.setdefault(embedded.MAY_CREATE, "1")  # the run and its subprocesses create databases
collect_ignore = [f"memory_extras/{extra}" for extra in extras.available() if extra not in settings.CONF.extras]
SLOW_FIXTURES = {"browser", "site"}
DATABASE = "transactional_db"
DISTRIBUTED = "--distributed"
STARTS_PROCESS = "A test that starts a process is `@pytest.mark.slow`."

_started_server = False
gc.set_threshold(20_000, 20, 50)  # the default would search for reference cycles every few hundred objects
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")  # a machine may be slow


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the seed and for a distributed database."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in an order that this number decides")
    parser.addoption(DISTRIBUTED, action="store_true", help="run on the database of DATABASE_URL itself, on Citus")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report the seed of the order."""
    seed = config.option.shuffle
    return None if seed is None else f"shuffled by {seed}"


def pytest_configure(config: pytest.Config) -> None:
    """Remember whether this run must stop the embedded database at its end. Its workers don't stop it."""
    global _started_server
    config.option.reuse_db |= config.getoption(DISTRIBUTED)
    if hasattr(config, "workerinput"):
        return
    _started_server = settings.DATABASE_IS_EMBEDDED and not embedded.running_socket(settings.EMBEDDED_DATABASE_DIR)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if _started_server:
        embedded.stop(settings.EMBEDDED_DATABASE_DIR)


@pytest.hookimpl(wrapper=True)  # also around the selection by `-m` and the order of pytest-django
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark tests that open a browser or serve the site as slow, and all cases except the first of a database test.

    Other slow tests are marked in their modules. Shuffle if requested; otherwise start with the longest modules.
    """
    begun: set[str] = set()
    for item in items:
        fixtures, test = set(getattr(item, "fixturenames", ())), item.nodeid.partition("[")[0]
        asks = DATABASE in fixtures or item.get_closest_marker("django_db")
        if fixtures & SLOW_FIXTURES or (asks and test in begun):
            item.add_marker("slow")
        begun.add(test)
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
    yield
    if config.option.shuffle is None:
        items.sort(key=_seconds_of_module(items), reverse=True)


def pytest_collection_finish() -> None:
    """Exclude all current objects from garbage collection, because they stay."""
    gc.freeze()


def _seconds_of_module(items: list[pytest.Item]) -> Callable[[pytest.Item], float]:
    """Return a key that estimates the duration of an item's module, so that no long module runs last.

    The estimate is the duration of the longest test, plus a little for each test.
    """
    longest: dict[str, float] = defaultdict(float)
    others: dict[str, float] = defaultdict(float)
    for item in items:
        module = item.nodeid.partition("::")[0]
        seconds = [mark.kwargs.get("seconds", 0) for mark in item.iter_markers("slow")]
        longest[module] = max(longest[module], *seconds, 0)
        others[module] += 1 if seconds else 0.05
    return lambda item: longest[module := item.nodeid.partition("::")[0]] + others[module]


@pytest.fixture(autouse=True)
def _quick_without_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that starts Python without being marked as slow. Libraries may start other programs."""
    if request.node.get_closest_marker("slow"):
        return
    start = subprocess.Popen.__init__

    def start_unless_python(self: Any, command: Any, *arguments: Any, **named: Any) -> None:
        if command[0] == sys.executable:
            pytest.fail(STARTS_PROCESS)
        start(self, command, *arguments, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", start_unless_python)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail(STARTS_PROCESS))


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, django_db_blocker: DjangoDbBlocker, pytestconfig: pytest.Config
) -> None:
    """Create the database of the run from a migrated template. A distributed database is used unchanged."""
    if pytestconfig.getoption(DISTRIBUTED):
        connection.settings_dict["TEST"]["NAME"] = connection.settings_dict["NAME"]
        return
    with django_db_blocker.unblock():
        connection.settings_dict["TEST"]["TEMPLATE"] = migrated()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Restore the database after each test. Its data need not survive a crash of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        with django_db_blocker.unblock():
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER DATABASE {connection.settings_dict['NAME']} SET synchronous_commit = off")
            connection.close()  # the setting applies to new connections
            fresh = FreshDatabase(KeptConnection(patch))
            fresh.forget_statistics()
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: fresh.restore())
        yield
    gc.collect()  # closes connections of ended threads; while any is open, dropping the database waits
    fresh.close()


@pytest.fixture(scope="session", autouse=True)
def _settings_of_tests() -> Iterator[None]:
    """Override settings once for all tests, because overriding them in each test takes longer than many tests.

    Tests make calls faster than applications, and the machine may be busy, so limits are high; tests of limits set
    their own. Each round would queue a summary, and many turns a formation; tests of these use `rolling` and `forming`.
    Static files are not listed for each client, and password hashing is fast.
    """
    with override_settings(
        API_RATE=1_000_000,
        ANONYMOUS_RATE=1_000_000,
        LIMITS=LimitSettings(lock_seconds=60, request_seconds=120, budget_seconds=3600),
        WHITENOISE_AUTOREFRESH=True,
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        MEMORY_CONTEXT=settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 0}),
        ROLLING_SUMMARY=RollingSummarySettings(enabled=False),
        MEMORY_FORMATION=MemoryFormationSettings(enabled=False),
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_tls_context() -> Iterator[None]:
    """Read the certificates of authorities once, not for each HTTP client. Tests don't use TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2._transports.default, "create_ssl_context", functools.cache(httpx2.create_ssl_context))
        yield


@pytest.fixture(autouse=True)
def _nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable background writes: buffered items are written when a test says so, and after it.

    Also, an empty queue is reported without a pause, and keys are remembered for as long as a slow test runs.
    """
    monkeypatch.setattr(deferred, "INTERVAL", 3_600)
    monkeypatch.setattr(deferred, "SHORT_INTERVAL", 3_600)
    monkeypatch.setattr(deferred, "sends_from_thread", lambda: True)  # so no notification is sent
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(authentication, "CACHED_KEYS", ProcessCache(authentication.MAX_KEYS, seconds=3_600))
    cache.clear()
    daily_limit.meter.forget()
    platform_text.written_lines.forget()
    yield
    daily_limit.meter.forget()
    for waiting in (assemble.waiting_accesses, receipts.waiting, platform_text.line_buffer, daily_limit.usage_writer):
        with suppress(RuntimeError):  # without a database, the items are dropped
            waiting.flush()


@pytest.fixture
def rolling(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write rolling summaries after each round, as if contexts were requested. All other settings are the defaults."""
    settings.ROLLING_SUMMARY = RollingSummarySettings()
    for name in ("UNREAD_TURNS", "FREE_TURNS"):
        monkeypatch.setattr(f"moments_app.summaries.{name}", 1)


@pytest.fixture
def forming(settings: Settings) -> None:
    """Use the default settings of memory streams."""
    settings.MEMORY_FORMATION = MemoryFormationSettings()


@pytest.fixture(scope="module")
def kept_rows() -> KeptRows:
    """Rows that the tests of a module start with."""
    return KeptRows()


@pytest.fixture
def ada(transactional_db: None) -> UserProfile:
    return UserProfile.objects.ensure("ada")


@pytest.fixture
def bo(transactional_db: None) -> UserProfile:
    """Another person with similar data."""
    return UserProfile.objects.ensure("bo")


@pytest.fixture
def service(transactional_db: None) -> Api:
    """A client with a service key of scope admin."""
    return Api(ApiKey.objects.issue("service", scope="admin")[1])


@pytest.fixture
def root(transactional_db: None) -> Client:
    """A client of an operator with all permissions."""
    return operator()


@pytest.fixture
def as_ada(ada: UserProfile) -> Api:
    """A client with a key of Ada."""
    return Api(ApiKey.objects.issue("ada", user=ada, scope="admin")[1])


@pytest.fixture
def as_stranger(transactional_db: None) -> Api:
    """A client with a key of a person without data."""
    stranger = UserProfile.objects.ensure("stranger")
    return Api(ApiKey.objects.issue("stranger", user=stranger, scope="admin")[1])


@pytest.fixture
def archive_folder(settings: Settings, tmp_path: Path) -> Path:
    """The folder of the archives during a test."""
    kept = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = settings.STORAGES | {"archive": kept}
    return tmp_path


@pytest.fixture
def spool_dir(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spool rounds in a folder of the test, and replay them soon."""
    settings.SPOOL_DIR = tmp_path / "spool"
    monkeypatch.setattr(rounds, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(rounds, "IDLE_CHECK_SECONDS", 0.2)


@pytest.fixture
def upstream(settings: Settings, spool_dir: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """The model behind the chat endpoint, which answers "Noted." by default."""
    with OpenAIServer() as server:
        server.always(content("Noted."))
        settings.CHAT = ChatSettings(
            upstream_base_url=server.base_url,
            upstream_api_key=SecretStr("upstream-key"),
            memory_timeout_seconds=30,
        )
        monkeypatch.setattr("moments_app.interfaces.chat.rounds.STORE_SECONDS", 30)
        yield server


@pytest.fixture
def kept_receipts(settings: Settings) -> None:
    """Store context receipts, as by default."""
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 7})


@pytest.fixture
def model_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A server that is the engine's model. Failed jobs are due again at once."""
    with OpenAIServer() as server:
        settings.ENGINE = settings.ENGINE.model_copy(
            update={
                "provider": "openai",
                "base_url": server.base_url,
                "api_key": SecretStr("sk-marked-key"),
                "timeout_seconds": 30,
            }
        )
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0, "max_attempts": 3})
        yield server


@pytest.fixture
def embeddings_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A server that embeds texts with 64 dimensions in batches of 10. Failed jobs are due again at once."""
    embeddings._of_fixed_width.clear()
    with OpenAIServer() as server:
        settings.EMBEDDING = EmbeddingSettings(
            base_url=server.base_url,
            api_key=SecretStr("sk-marked-key"),
            model="test-embedder",
            dimensions=64,
            batch_size=10,
        )
        settings.ENGINE = settings.ENGINE.model_copy(update={"timeout_seconds": 30})
        monkeypatch.setattr("moments_app.recall.query.TIMEOUT", 30)
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0, "max_attempts": 3})
        yield server


@pytest.fixture
def patient(settings: Settings) -> None:
    """Let requests wait for locks as long as a test needs."""
    settings.LIMITS = settings.LIMITS.model_copy(update={"lock_seconds": TIMEOUT, "request_seconds": TIMEOUT})
