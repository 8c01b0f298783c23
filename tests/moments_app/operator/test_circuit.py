"""The pages of circuits."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Circuit, Job
from sessions_app.models import Event, UserProfile
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def circuit(ada: UserProfile) -> Circuit:
    """An open circuit that holds a job."""
    circuit = Circuit.objects.create(
        engine="openai:gpt",
        work="text",
        state="open",
        holds_all=True,
        reason="timeout",
        error="openai:gpt did not answer within 60 s.",
        next_probe_at=timezone.now() + timedelta(seconds=30),
    )
    job = Job.objects.request("build_moments", talk(ada, 60), requested_by="test", force=True)
    Job.objects.filter(pk=job.pk).update(circuit=circuit, error=circuit.why)
    return circuit


def url(verb: str, circuit: Circuit) -> str:
    return reverse(f"admin:moments_app_circuit_{verb}", args=[circuit.pk])


@pytest.mark.slow
def test_the_page_shows_the_engine_the_reason_and_what_waits(root: Client, circuit: Circuit) -> None:
    shown = page(root, list_url(Circuit))
    for told in ("openai:gpt", "text", "open", "did not answer within 60 s.", f"circuit__id__exact={circuit.pk}"):
        assert told in shown
    assert change_url(Job.objects.held().get()) in page(root, change_url(circuit))
    job = Job.objects.held().get()
    assert change_url(circuit) in page(root, change_url(job))
    assert change_url(job) in page(root, list_url(Job), circuit__id__exact=circuit.pk, state="held")


def test_the_dashboard_links_to_an_open_circuit(root: Client, circuit: Circuit) -> None:
    assert change_url(circuit) in page(root, reverse("admin:index"))
    circuit.close("operator:eve")
    assert change_url(circuit) not in page(root, reverse("admin:index"))


@pytest.mark.slow
def test_an_open_circuit_does_not_affect_readyz(client: Client, circuit: Circuit) -> None:
    Job.objects.update(run_after=timezone.now() - timedelta(hours=1))
    assert client.get("/readyz").status_code == 200


def test_closing_asks_for_confirmation_with_the_number_of_held_jobs(root: Client, circuit: Circuit) -> None:
    shown = page(root, change_url(circuit))
    assert "Held jobs that become due: 1." in shown and "Close this circuit" in shown


def test_row_30_closing_a_circuit_makes_its_held_jobs_due(root: Client, circuit: Circuit) -> None:
    assert "is closed" in root.post(url("close", circuit), follow=True).content.decode()
    assert Job.objects.due().filter(process="build_moments").exists()
    circuit.refresh_from_db()
    assert (circuit.state, circuit.closed_by) == ("closed", "operator:root")
    assert Event.objects.get(type="circuit_closed").actor == "operator:root"
    assert [entry.get_change_message() for entry in LogEntry.objects.all()] == ["Closed."]
    assert "already closed" in root.post(url("close", circuit), follow=True).content.decode()


def test_trying_now_makes_the_next_probe_due(root: Client, circuit: Circuit) -> None:
    Circuit.objects.send_probes()
    assert not Job.objects.due().filter(process="build_moments").exists()
    root.post(url("try", circuit))
    Circuit.objects.send_probes()
    assert Job.objects.due().filter(process="build_moments").exists()
    assert Event.objects.get(type="circuit_tried").actor == "operator:root"


def test_both_actions_are_in_the_list(root: Client, circuit: Circuit) -> None:
    root.post(list_url(Circuit), {"action": "try_now", "_selected_action": [circuit.pk]})
    selected = {"action": "close", "_selected_action": [circuit.pk]}
    assert "Close these circuits" in root.post(list_url(Circuit), selected).content.decode()
    assert not Event.objects.filter(type="circuit_closed").exists()
    root.post(list_url(Circuit), selected | {"sure": "1"})
    assert set(Event.objects.values_list("type", flat=True)) >= {"circuit_tried", "circuit_closed"}


def test_the_page_takes_a_constant_number_of_queries(root: Client, circuit: Circuit) -> None:
    few = queries_of(root, list_url(Circuit))
    for number in range(5):
        Circuit.objects.create(engine=f"more {number}", work="text")
    assert queries_of(root, list_url(Circuit)) == few <= MAX_QUERIES
