"""The metrics for Prometheus."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.parser import text_string_to_metric_families as of_text

from memoryproject.conf import BASE_DIR
from moments_app.models import EmbeddingModel, EngineCall, Job, MomentEmbedding
from sessions_app.models import ApiKey, Application, Event, UserProfile
from sessions_app.models.daily_limit import usage_writer
from tests.support.api import Api
from tests.support.furnished import furnish
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer, error
from tests.support.processes import environment
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

STATEMENTS = 30


def figures(service: Api) -> dict[str, float]:
    """Return all metrics by name and labels."""
    cache.clear()
    lines = Client().get("/metrics", headers=service.headers).content.decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def ask_for(user: UserProfile, process: str, **fields: object) -> Job:
    job = Job.objects.request(process, talk(user, 3, session_id=f"s-{process}"), requested_by="test")
    Job.objects.filter(pk=job.pk).update(**fields)
    return job


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0;escaping=underscores", "text/plain; version=1.0.0; "),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; ",
        ),
        ("application/openmetrics-text;version=abc", "text/plain; version=0.0.4; charset=utf-8"),
        ("image/png", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_metrics_have_the_format_that_the_client_accepts(service: Api, accept: str, content_type: str) -> None:
    answer = Client().get("/metrics", headers=service.headers | {"Accept": accept})
    assert answer.status_code == 200 and answer["Content-Type"].startswith(content_type)
    parse = of_openmetrics if "openmetrics" in content_type else of_text
    assert "memory_jobs" in {family.name for family in parse(answer.content.decode())}


def test_jobs_are_counted_by_state_process_and_lane(service: Api, ada: UserProfile) -> None:
    ask_for(ada, "roll_summary"), ask_for(ada, "build_moments"), ask_for(ada, "embed", status="failed")
    found = figures(service)
    assert found['memory_jobs{status="queued"}'] == 2
    assert found['memory_jobs{status="processing"}'] == 0
    assert found['memory_jobs_by_process{lane="waited",process="roll_summary",status="queued"}'] == 1
    assert found['memory_jobs_by_process{lane="index",process="embed",status="failed"}'] == 1


def test_jobs_held_by_a_failing_model_count_as_waiting(
    service: Api, ada: UserProfile, model_server: OpenAIServer
) -> None:
    model_server.always(error(503))
    job = build(talk(ada, 60))
    assert job.held_by == "backoff" and job.held_since is not None
    Job.objects.update(
        held_since=timezone.now() - timedelta(minutes=7), run_after=timezone.now() + timedelta(minutes=1)
    )
    found = figures(service)
    assert found['memory_jobs_held{process="build_moments",waits_for="backoff"}'] == 1
    assert 419 < found['memory_job_wait_seconds{waits_for="backoff"}'] < 430
    assert found["memory_job_oldest_wait_seconds"] > 419
    assert found['memory_job_wait_seconds{waits_for="due"}'] == 0
    assert found['memory_engine_calls_recent{end="server_error",engine="openai:gpt-4.1-mini"}'] >= 1


def test_held_since_survives_retries_and_is_cleared_by_a_restart(ada: UserProfile) -> None:
    job = ask_for(ada, "build_moments", status="processing", attempts=1, heartbeat_at=timezone.now())
    job.refresh_from_db()
    job.postpone(timezone.now(), "The circuit is open.", Job.Held.CIRCUIT)
    first = Job.objects.get().held_since
    Job.objects.update(status="processing", attempts=1)
    Job.objects.get().retry_later("No luck.")
    held = Job.objects.get()
    assert (held.held_by, held.held_since) == ("backoff", first)
    Job.objects.update(status="failed")
    held.restart()
    assert Job.objects.get().held_since is None


@pytest.mark.slow
def test_missing_vectors_and_refused_texts_are_counted(
    service: Api, ada: UserProfile, embeddings_server: OpenAIServer
) -> None:
    build(talk(ada, 60))
    model = EmbeddingModel.objects.in_use()
    missing = figures(service)['memory_vectors_missing{kind="moment"}']
    assert missing > 0
    work_off()
    MomentEmbedding.objects.filter(model=model).update(vector=None)
    found = figures(service)
    assert found['memory_vectors_missing{kind="moment"}'] == 0
    assert found['memory_vectors_refused{kind="moment"}'] == missing


def test_the_size_of_a_database_is_a_metric_if_only_logins_may_connect(service: Api) -> None:
    everybody = f'CONNECT ON DATABASE "{connection.settings_dict["NAME"]}"'
    with connection.cursor() as cursor:
        cursor.execute(f"REVOKE {everybody} FROM PUBLIC")
    try:
        assert figures(service)["memory_database_bytes"] > 1_000_000
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"GRANT {everybody} TO PUBLIC")


def test_the_state_of_the_site_and_restarts_are_metrics(service: Api) -> None:
    told = {"state": "degraded", "previous": "up", "since": timezone.now().isoformat(), "reasons": ["Slow."]}
    Event.objects.create(type="state_changed", actor="watch", payload=told)
    Event.objects.create(type="process_restarted", actor="run", payload={"told": "It ended."})
    found = figures(service)
    assert [found[f'memory_state{{state="{state}"}}'] for state in ("up", "degraded", "down")] == [0, 1, 0]
    assert found["memory_process_restarts_last_day"] == 1


@pytest.mark.slow
def test_metrics_take_a_constant_number_of_queries(service: Api, embeddings_server: OpenAIServer) -> None:
    EmbeddingModel.objects.in_use()
    counts = []
    for number in range(3):
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            Client().get("/metrics", headers=service.headers)
        counts.append(len(captured))
        furnish() if number == 1 else None
    assert counts[1] == counts[2] <= STATEMENTS  # the first request also records the use of the key


def test_tokens_cost_and_duration_of_model_calls_are_metrics(service: Api, ada: UserProfile) -> None:
    for tokens in (100, 200):
        EngineCall.objects.create(
            purpose="moments",
            engine="openai:m",
            ok=True,
            input_tokens=tokens,
            output_tokens=5,
            latency_ms=1500,
            cost_usd="0.25",
        )
    found = figures(service)
    assert found['memory_engine_tokens_recent{direction="input",engine="openai:m"}'] == 300
    assert found['memory_engine_tokens_recent{direction="output",engine="openai:m"}'] == 10
    assert found['memory_engine_usd_recent{engine="openai:m"}'] == 0.5
    assert found['memory_engine_seconds_recent{engine="openai:m"}'] == 3


def test_usage_is_counted_by_application_and_an_application_sees_only_its_own(service: Api, ada: UserProfile) -> None:
    other = Application.objects.create(name="other")
    others = Api(ApiKey.objects.issue("other", application=other.pk)[1])
    for api in (service, others, others):
        api.post("sessions/s1/messages", user_id="ada", messages=[{"role": "user", "content": "Four"}])
    usage_writer.flush()
    found, own = figures(service), figures(others)
    assert found['memory_requests_total{application="other"}'] == 2
    assert own['memory_requests_total{application="other"}'] == 2
    assert [name for name in own if 'application="default"' in name] == []


COUNTING = """
import asyncio
from prometheus_client import CollectorRegistry, generate_latest
from memoryproject.serving.observation import with_metrics, register

async def sent(message): ...

async def answer():
    with with_metrics({"path": "/api/v1/sessions"}, sent) as send:
        await send({"type": "http.response.start", "status": 401})

asyncio.run(answer())
registry = CollectorRegistry()
register(registry)
print(generate_latest(registry).decode())
"""


@pytest.mark.slow
def test_requests_are_counted_by_entry_point_and_status_across_the_processes_of_a_host(tmp_path: Path) -> None:
    for number in (1, 2):
        told = subprocess.run(
            [sys.executable, "-c", COUNTING],
            cwd=BASE_DIR,
            env=environment(PROMETHEUS_MULTIPROC_DIR=str(tmp_path)),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f'memory_http_request_seconds_count{{door="rest",status="401"}} {number}.0' in told


@pytest.mark.slow
def test_a_starting_web_server_removes_only_the_metrics_of_killed_servers(tmp_path: Path) -> None:
    code = "from memoryproject import gunicorn_conf as conf; conf.make_figures_folder(); print(flush=True); input()"

    def start() -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        own = environment(DATA_DIR=str(tmp_path))
        server = subprocess.Popen(
            [sys.executable, "-c", code], cwd=BASE_DIR, env=own, stdin=pipe, stdout=pipe, text=True
        )
        assert server.stdout and server.stdout.readline() == "\n"
        return server

    def folders() -> set[Path]:
        return {path for path in (tmp_path / "figures").iterdir() if path.is_dir()}

    with start() as living:
        of_living = folders()
        with start() as killed:
            killed.kill()
        assert len(folders()) == 2
        with start() as third:
            assert of_living < folders() and len(folders()) == 2
            third.kill()
        living.kill()


@pytest.mark.slow
def test_a_web_server_without_a_writable_data_folder_stores_its_metrics_in_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = (
        "import os\n"
        "from memoryproject import gunicorn_conf as conf\n"
        "conf.make_figures_folder()\n"
        "from prometheus_client import Counter\n"
        "Counter('requests', 'Requests').inc()\n"
        "print(len(os.listdir(os.environ['PROMETHEUS_MULTIPROC_DIR'])))\n"
        "conf.on_exit(None)\n"
    )
    own = environment(DATA_DIR=str(tmp_path / "file" / "data"), TMPDIR=str(tmp_path), LOG_LEVEL="WARNING")
    started = subprocess.run([sys.executable, "-c", code], cwd=BASE_DIR, env=own, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr
    told = started.stdout + started.stderr
    assert f"DATA_DIR: {tmp_path / 'file' / 'data' / 'figures'} can't be used: Not a directory." in told
    folder = tmp_path / f"memory-figures-{os.getuid()}"
    assert f"Requests are counted in {folder}." in told and "2" in started.stdout.splitlines()  # lock, counter
    assert [path.name for path in folder.iterdir()] == ["lock"]
