"""The pages of probes: saved from a turn, run with a button, and shown over time."""

import uuid

import pytest
from django.test import Client
from django.urls import reverse

from memory_extras.lab.models import Probe
from memory_extras.lab.probes.run import RunProbes
from moments_app.models import Job
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import work_off
from tests.support.operator import operator
from tests.support.pages import PLANTED, change_url, list_url, page, queries_of

pytestmark = pytest.mark.django_db(transaction=True)

SAID = [NewMessage("user", "What is my cat called?"), NewMessage("assistant", "Your cat is Quince.")]


@pytest.fixture
def session(ada: UserProfile) -> Session:
    return append(ada, "s1", SAID).session


def keep_url(session: Session, turn: int = 0) -> str:
    return f"{reverse('admin:sessions_app_session_probe', args=[session.pk])}?turn={turn}"


@pytest.mark.slow
def test_a_turn_and_its_answer_can_be_saved_as_a_probe_and_run_with_a_button(root: Client, session: Session) -> None:
    assert keep_url(session) in page(root, change_url(session))
    form = page(root, keep_url(session))
    assert "What is my cat called?" in form and "Your cat is Quince." in form and 'value="1"' in form
    answer = root.post(keep_url(session), {"question": "What is my cat called?", "expected": "Quince", "evidence": "1"})
    probe = Probe.objects.get()
    assert answer["Location"] == change_url(probe)
    assert (probe.session, probe.expected, probe.evidence_sequences) == (session, "Quince", [1])
    assert len(probe.source_message_ids) == 2 and probe.created_by == "operator:root"
    root.post(reverse("admin:lab_probe_run", args=[probe.pk]))
    assert Job.objects.get(process=RunProbes.name).requested_by == "operator:root"
    work_off()
    shown = page(root, change_url(probe))
    assert "1 of 1" in shown and "met 1 of 1 times" in shown
    assert 'title="rem://sessions/s1/messages/1">turn 1</a>' in shown  # the evidence
    assert 'title="rem://sessions/s1/messages/0">turn 0 of s1</a>' in shown
    listed = page(root, list_url(Probe))
    assert "Results over time" in listed and "100%" in listed


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"expected": ""}, "required"),
        ({"expected": "It is."}, "at least one word"),
        ({"evidence": "9"}, "no turn 9"),
        ({"evidence": "x"}, "Enter turn numbers, such as 3,4,7-9."),
    ],
)
def test_an_invalid_probe_is_rejected_with_the_reason(
    root: Client, session: Session, wrong: dict[str, str], why: str
) -> None:
    answer = root.post(keep_url(session), {"question": "What?", "expected": "Quince"} | wrong)
    assert answer.status_code == 400 and why in answer.content.decode()
    assert not Probe.objects.exists()


def test_a_probe_can_be_saved_without_a_session(root: Client, session: Session) -> None:
    root.post(keep_url(session), {"question": "What?", "expected": "Quince", "anywhere": "on"})
    assert Probe.objects.get().session is None


def test_changes_between_two_results_are_shown(root: Client, session: Session) -> None:
    probe = Probe.objects.create(user=session.user, question="What?", expected="Quince", created_by="test")
    for number in (1, 2):
        setup = {"prompts": {"rem://prompts/moment-builder": number}, "settings": {"MEMORY_CONTEXT__MAX_TOKENS": 150}}
        probe.results.create(run_id=uuid.uuid4(), user=session.user, is_met=number == 1, setup=setup, requested_by="t")
    for shown in (page(root, change_url(probe)), page(root, list_url(Probe))):
        assert shown.count("moment-builder: 1 → 2") == 1
        assert "MEMORY_CONTEXT__MAX_TOKENS" not in shown


def test_row_18_a_viewer_sees_probes_but_cannot_save_change_or_run_them(session: Session) -> None:
    probe = Probe.objects.create(user=session.user, question=PLANTED, expected=PLANTED, created_by=PLANTED)
    viewer = operator(group="viewers")
    shown = page(viewer, list_url(Probe)) + page(viewer, change_url(probe)) + page(viewer, change_url(session))
    assert PLANTED not in shown and "save as probe" not in shown and "Run all probes" not in shown
    assert viewer.get(keep_url(session)).status_code == 403
    assert viewer.post(keep_url(session), {"question": "What?", "expected": "Quince"}).status_code == 403
    assert viewer.post(reverse("admin:lab_probe_run", args=[probe.pk])).status_code == 403
    assert viewer.post(change_url(probe), {"expected": "x"}).status_code == 403
    assert Probe.objects.count() == 1 and not Job.objects.filter(process=RunProbes.name).exists()


def test_the_list_takes_a_constant_number_of_queries(root: Client, session: Session) -> None:
    def kept(number: int) -> None:
        Probe.objects.create(user=session.user, question=f"What? {number}", expected="Quince", created_by="test")

    kept(0)
    few = queries_of(root, list_url(Probe))
    for number in range(1, 9):
        kept(number)
    assert queries_of(root, list_url(Probe)) == few
