"""Running probes: whether the answer to a question reaches the context, within the memory of one person."""

from typing import Any

import pytest
from django.db import DatabaseError
from pytest_django.fixtures import Settings

from memory_extras.lab.models import NO_SEARCHABLE_WORD, Probe, ProbeResult
from memory_extras.lab.probes.run import NO_SESSION, RunProbes
from memory_extras.lab.probes.save import draft_from, save_probe
from moments_app.jobs.runner import run_job
from moments_app.models import ContextReceipt, EngineCall, Job, ServedLine
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.jobs import ran, work_off

pytestmark = pytest.mark.django_db(transaction=True)

EVE = "operator:eve"
SAID = [
    NewMessage("user", "We adopted a puppy yesterday, her name is Pixie."),
    NewMessage("assistant", "Congratulations on Pixie!"),
]


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """A session about Ada's puppy, followed by another session."""
    session = append(ada, "s1", SAID).session
    append(ada, "s2", [NewMessage("user", "Good evening."), NewMessage("assistant", "Good evening!")])
    return session


def kept(service: Api, **fields: Any) -> Any:
    body = {"user_id": "ada", "question": "What is my puppy called?", "expected": "The puppy is Pixie."} | fields
    return service.post("probes", **body)


def run(user: UserProfile, session: Session | None = None) -> Job:
    return ran(Job.objects.request(RunProbes.name, session, user_id=user.pk, requested_by="test", force=True))


def test_a_run_reports_whether_words_and_evidence_reach_the_context(
    service: Api, ada: UserProfile, session: Session
) -> None:
    made = kept(service, evidence_session_id="s1", evidence_sequences=[0])
    assert made.status_code == 201
    asked = service.post("probes/run", user_id="ada")
    assert asked.status_code == 202
    work_off()
    assert service.get(f"jobs/{asked.json()['job_id']}", user_id="ada").json()["result"] == {"probes": 1, "met": 1}
    probe_id = made.json()["probe_id"]
    [result] = service.get(f"probes/{probe_id}/results", user_id="ada").json()["results"]
    assert (result["words_found"], result["words_count"], result["missing_words"]) == (2, 2, [])
    assert (result["evidence_found"], result["evidence_count"]) == (1, 1)
    assert result["run_id"] == asked.json()["job_id"]
    assert "rem://sessions/s1/messages/0" in result["refs"]["retrieved"]
    assert result["setup"]["prompts"]["rem://prompts/moment-builder"] == 1
    assert result["setup"]["settings"]["MEMORY_CONTEXT__MAX_TOKENS"] == 3_000
    assert service.get(f"probes/{probe_id}", user_id="ada").json()["is_met"] is True
    assert service.get("probes", user_id="ada", is_met="false").json()["total"] == 0


def test_a_probe_is_not_met_if_memory_lacks_the_answer(service: Api, ada: UserProfile, session: Session) -> None:
    kept(service, question="Which sport does my sister like?", expected="Kayaking in Norway.")
    assert run(ada).result == {"probes": 1, "met": 0}
    assert ProbeResult.objects.get().missing_words == ["kayaking", "norway"]


def test_the_question_does_not_count_as_an_answer(service: Api, ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "Is the kiln from Delft?"), NewMessage("assistant", "I don't know.")])
    kept(service, question="Is the kiln from Delft?", expected="Delft")
    assert run(ada).result == {"probes": 1, "met": 0}


def test_a_probe_is_not_met_if_its_evidence_is_missing(service: Api, ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "The red kiln broke.")] + SAID * 1)
    kept(service, session_id="s1", evidence_sequences=[0])
    Probe.objects.update(evidence_sequences=[999])
    assert run(ada).result == {"probes": 1, "met": 0}


def test_a_run_calls_no_model_and_does_not_count_as_serving(service: Api, ada: UserProfile, session: Session) -> None:
    kept(service)
    run(ada)
    assert not EngineCall.objects.exists()
    assert not ContextReceipt.objects.exists()
    assert not ServedLine.objects.exists()


def test_a_run_of_a_session_asks_only_its_probes(service: Api, ada: UserProfile, session: Session) -> None:
    kept(service)
    kept(service, session_id="s1")
    assert run(ada, session).result["probes"] == 1
    assert run(ada).result["probes"] == 2


def test_an_interrupted_run_continues_where_it_stopped(service: Api, ada: UserProfile, session: Session) -> None:
    kept(service)
    kept(service, session_id="s1")
    job = Job.objects.request(RunProbes.name, user_id=ada.pk, requested_by="test", force=True)
    first = Probe.objects.order_by("pk").first()
    assert first is not None
    done = ProbeResult.objects.create(run_id=job.job_id, probe=first, user=ada, is_met=False, requested_by="test")
    run_job(job.job_id)
    assert ProbeResult.objects.count() == 2
    assert ProbeResult.objects.get(pk=done.pk).words_count == 0


def test_a_missing_session_and_a_question_over_the_budget_are_problems(
    service: Api, ada: UserProfile, settings: Settings
) -> None:
    kept(service)
    run(ada)
    append(ada, "s1", SAID)
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"max_tokens": 100})
    kept(service, question="puppy " * 600)
    run(ada)
    problems = list(ProbeResult.objects.order_by("pk").values_list("problem", flat=True))
    assert problems[:2] == [NO_SESSION, ""]
    assert problems[2].startswith("max_tokens: the policy and the query need")


class TestKeeping:
    """Which probes are rejected, and which are stored once."""

    @pytest.mark.parametrize(
        "wrong",
        [
            {"expected": ""},
            {"expected": "  "},
            {"question": ""},
            {"expected": "It is."},
            {"evidence_sequences": [0]},
            {"session_id": "s1", "evidence_sequences": [7]},
            {"session_id": "s1", "evidence_sequences": [-1]},
            {"expected": "x" * 4_001},
            {"unknown": 1},
        ],
    )
    def test_bad_input_is_rejected(self, service: Api, session: Session, wrong: dict[str, Any]) -> None:
        assert kept(service, **wrong).status_code == 400
        assert not Probe.objects.exists()

    def test_a_session_of_another_person_is_not_found(self, service: Api, session: Session, bo: UserProfile) -> None:
        for named in ("session_id", "evidence_session_id"):
            answer = service.post("probes", user_id="bo", question="What?", expected="Pixie", **{named: "s1"})
            assert answer.status_code == 404
        assert not Probe.objects.exists()

    def test_a_question_is_stored_once_per_session(self, service: Api, session: Session) -> None:
        assert [kept(service).status_code for _ in range(2)] == [201, 200]
        assert kept(service, session_id="s1").status_code == 201

    def test_the_number_of_probes_is_limited(
        self, service: Api, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memory_extras.lab.probes.save.MAX_PROBES", 1)
        kept(service)
        refused = kept(service, question="Another?")
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (409, "too_many_probes")
        assert kept(service).status_code == 200

    def test_a_probe_can_be_changed_and_deleted(self, service: Api, session: Session) -> None:
        address = f"probes/{kept(service).json()['probe_id']}"
        fields = {"expected": "Pixie the puppy", "evidence_session_id": "s1", "evidence_sequences": [1, 0, 0]}
        changed = service.patch(address, user_id="ada", **fields).json()
        assert (changed["expected"], changed["evidence_sequences"]) == ("Pixie the puppy", [0, 1])
        refused = service.patch(address, user_id="ada", expected="It is.")
        assert refused.json()["errors"][0]["detail"] == f"expected: {NO_SEARCHABLE_WORD}"
        assert service.delete(address, user_id="ada").status_code == 204
        assert service.get(address, user_id="ada").status_code == 404

    def test_a_draft_has_the_question_and_answer_around_a_turn(self, ada: UserProfile, session: Session) -> None:
        for sequence in (0, 1):
            draft = draft_from(session, sequence)
            assert draft is not None
            assert (draft.question, draft.expected) == (SAID[0].content, SAID[1].content)
            assert draft.evidence == [1]
        assert draft_from(append(ada, "s3", SAID[:1]).session, 0) is None


def test_row_9_probes_can_be_read_changed_and_run_only_for_their_person(
    service: Api, as_stranger: Api, ada: UserProfile, bo: UserProfile, session: Session
) -> None:
    address = f"probes/{kept(service).json()['probe_id']}"
    run(ada)
    assert service.get("probes", user_id="bo").json()["total"] == 0
    for api, named in ((service, {"user_id": "bo"}), (as_stranger, {})):
        assert api.get(address, **named).status_code == 404
        assert api.get(f"{address}/results", **named).status_code == 404
        assert api.patch(address, **named, expected="Mine").status_code == 404
        assert api.delete(address, **named).status_code == 404
    assert run(bo).result == {"reason": "there are no probes"}


def test_row_9_an_unfiltered_query_sees_only_own_probes(
    service: Api, ada: UserProfile, bo: UserProfile, session: Session
) -> None:
    kept(service)
    run(ada)
    for person, number in (("ada", 1), ("bo", 0), (None, 0)):
        with acting_for(person, application=DEFAULT):
            assert (Probe.objects.count(), ProbeResult.objects.count()) == (number, number)
            if person != "ada":
                assert Probe.objects.update(expected="planted") == 0
    with pytest.raises(DatabaseError, match="row-level security"), acting_for("bo", application=DEFAULT):
        Probe.objects.create(user=ada, question="Planted?", expected="Planted", created_by="test")


def test_a_probe_names_its_creator(service: Api, ada: UserProfile, session: Session) -> None:
    draft = draft_from(session, 0)
    assert draft is not None
    probe, is_new = save_probe(ada, draft, created_by=EVE)
    assert is_new and probe.created_by == EVE
    assert kept(service).json()["created_by"].startswith("key:")
