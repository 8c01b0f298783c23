"""One person's calls always fail and those of others at random: others' jobs complete, and the page says why."""

import random
import threading
import time
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from moments_app.jobs.process import Lane, names_in
from moments_app.jobs.runner import run_claimed
from moments_app.models import Circuit, Job
from sessions_app.models import Event, UserProfile
from tests.support import openai_server as behave
from tests.support.openai_server import Behaviour, Handler, OpenAIServer
from tests.support.operator import operator
from tests.support.pages import page
from tests.support.transcript import talk
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

POISON = "hemlock"
WORKERS = 4
OTHERS = 19
PROCESSES = ("build_moments", "form_memories", "roll_summary")


def failing(share: float, seed: int) -> Behaviour:
    """Fail all requests with the poison, and a share of the others."""
    chance, lock = random.Random(seed), threading.Lock()

    def answer(handler: Handler, body: dict[str, Any]) -> None:
        with lock:
            fails = POISON in str(body) or chance.random() < share
        (behave.error(500) if fails else behave.answer_well)(handler, body)

    return answer


def work(done: threading.Event) -> None:
    """Work like a worker."""
    names, last = [name for lane in Lane for name in names_in(lane)], Job.FIRST_SUBJECT
    while not done.is_set():
        if job := Job.objects.claim_next(names, after=last):
            last = job.subject
            run_claimed(job)
        else:
            time.sleep(0.02)
    connection.close()


def keep_time(done: threading.Event) -> None:
    """Send probes like the clock."""
    while not done.wait(0.2):
        Circuit.objects.send_probes()
    connection.close()


@pytest.mark.slow(seconds=30)
def test_row_50_jobs_of_others_complete_and_the_page_names_the_failing_person(
    model_server: OpenAIServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 30)
    monkeypatch.setattr("moments_app.models.circuit.FIRST_PROBE_SECONDS", 0.5)
    settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0.5, "max_attempts": 6})
    model_server.always(failing(0.1, seed=50))
    others, root = [], operator()
    for number in range(OTHERS + 1):
        name = f"person-{number}" if number else "ada"
        session = talk(UserProfile.objects.ensure(name), 30, text="" if number else POISON)
        jobs = [Job.objects.request(process, session, requested_by="test", force=True) for process in PROCESSES]
        others += [job.pk for job in jobs if number]

    done = threading.Event()
    threads = [threading.Thread(target=work, args=[done]) for _ in range(WORKERS)]
    threads.append(threading.Thread(target=keep_time, args=[done]))
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: not Job.objects.open().filter(pk__in=others).exists())
        wait_until(lambda: "Calls about ada fail" in page(root, "/admin/"))
    finally:
        done.set()
        for thread in threads:
            thread.join()

    assert set(Job.objects.filter(pk__in=others).values_list("status", flat=True)) <= {"completed", "skipped"}
    shown = page(root, "/admin/")
    assert "<h3>Calls about ada fail</h3>" in shown and "other people were answered during this time" in shown
    assert shown.count('<li class="rem-incident">') == 1
    assert Event.objects.filter(type="circuit_opened").count() <= 4, "random failures rarely open the circuit"
