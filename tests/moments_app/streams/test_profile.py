"""A person's profile: a view of the current statements about them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from moments_app.models import MemoryAtom, MemoryStream, Retraction
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.form import FormMemories
from moments_app.streams.profile import PROFILE_MAX, READ, Said, derived, rebuild_profiles
from sessions_app.models import Session, UserProfile
from tests.support.api import Api
from tests.support.jobs import work_off
from tests.support.lives import say
from tests.support.streams import form, note, written
from tests.support.transcript import START, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

MARCH = datetime(2026, 3, 4, 8, tzinfo=UTC)


def said(content: str, kind: str = "other", **fields: Any) -> Said:
    values: dict[str, Any] = {"formed_at": MARCH, "is_pinned": False, "attribute": "", "value": ""} | fields
    return Said(content, kind, **values)


class TestDerived:
    """The profile derived from statements, without a database."""

    def test_statements_are_below_the_headings_of_their_kinds(self) -> None:
        profile = derived(
            [
                said("User: I'm allergic to hazelnuts.", "health"),
                said("User: I live in Turin.", "home"),
                said("User: My brother Mats is an electrician.", "relationship"),
                said("User: I went to the fair.", "event"),
            ],
            UTC,
        )
        assert profile.summary.split("\n") == [
            "People and pets:",
            "- User: My brother Mats is an electrician. (2026-03-04)",
            "Home:",
            "- User: I live in Turin. (2026-03-04)",
            "Health:",
            "- User: I'm allergic to hazelnuts. (2026-03-04)",
        ]

    def test_written_text_comes_first_and_pinned_statements_before_the_rest(self) -> None:
        written = said("Nora is a potter. Answer her briefly.", is_pinned=True, attribute="summary")
        pinned = said("Nora sells her boat.", is_pinned=True)
        rest = said("User: I live in Turin.", "home")
        assert derived([pinned, written, rest], UTC).summary.split("\n") == [
            written.content,
            pinned.content,
            "Home:",
            "- User: I live in Turin. (2026-03-04)",
        ]

    def test_the_text_is_limited_without_repetitions(self) -> None:
        many = [said(f"User: My cousin Ida{n} moved to street number {n} of Turin.", "relationship") for n in range(40)]
        many += [said(f"{'word ' * 60}{n}", kind) for n in range(8) for kind in ("health", "work", "goal")]
        text = derived([*many, *many], UTC).summary
        assert len(text) <= PROFILE_MAX and text.count("Ida0 ") == 1 and "Ida7 " in text and "Ida8 " not in text

    def test_old_plans_are_left_out(self) -> None:
        plan = said("User: I'm going to run a marathon.", "plan")
        later = said("User: I bought a kayak.", formed_at=MARCH + timedelta(days=200))
        assert "marathon" in derived([plan], UTC).summary
        assert "marathon" not in derived([later, plan], UTC).summary

    def test_interests_are_preferences_and_topics_are_subjects_of_several_statements(self) -> None:
        written = said("User is interested in bees.", attribute="interest", value="bees", is_pinned=True)
        statements = [
            said("User: I love painting, and I love it a lot.", "preference"),
            said("User: I don't like knitting.", "preference"),
            said("User: I fire the kiln on Fridays."),
            said("User: My kiln is in Turin."),
            said("User: A new kiln costs too much."),
        ]
        verbs = [said(f"Ida says that she called {name} four times.") for name in ("Tom", "Bea", "Max")]
        profile = derived([*statements, *verbs, written], UTC)
        assert (profile.interests, profile.preferred_topics) == (["bees", "painting"], ["kiln"])


def everywhere(service: Api) -> dict[str, str]:
    """Return the texts that state the present: the profile, and contexts."""
    context = {"user_id": "ada", "session_id": "now", "format": "markdown"}
    return {
        "profile": str(service.get("users/ada").json()),
        "context": service.get("memory/context", **context).json()["context"],
        "short": service.get("memory/context", **context, max_tokens=500).json()["context"],
    }


@pytest.mark.slow
def test_an_ended_fact_is_nowhere_current(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo and I love kilns. I work as a nurse at Haukeland Hospital.")
    assert all("Oslo" in text and "Haukeland" in text for text in everywhere(service).values())
    say(ada, "s2", "2025-03-10", "I moved to Bergen on 3 March 2025. I no longer work at Haukeland Hospital.")
    work_off()
    for place, text in everywhere(service).items():
        assert "Bergen" in text and "Oslo" not in text, place
        assert "nurse" not in text, place


@pytest.mark.slow
def test_an_undone_correction_leaves_no_trace_in_the_profile(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "My name is Will. My dog is called Rex.")
    before = service.get("users/ada").json()["summary"]
    [name] = service.get("facts", user_id="ada", attribute="name").json()["facts"]
    for wrong in ("User: My name is Willem.", "User: My name is Wilhelm."):
        made = service.patch(f"facts/{name['fact_id']}", user_id="ada", content=wrong).json()
        assert wrong in service.get("users/ada").json()["summary"]
        service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
        assert service.get("users/ada").json()["summary"] == before
    say(ada, "s2", "2025-01-12", "My cat is called Tom.")
    retract(Session.objects.get(session_id="s2"), None, reason="mistaken", requested_by="test")
    work_off()
    assert service.get("users/ada").json()["summary"] == before


@pytest.mark.slow
def test_simultaneous_changes_derive_the_profile_once(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")

    def derivations(change: Callable[[], Any]) -> int:
        with CaptureQueriesContext(connection) as captured:
            change()
        lasting_first = [query for query in captured if '"worth" DESC' in query["sql"]]
        return sum('"about_kind" = ' in query["sql"] for query in lasting_first)

    assert derivations(lambda: say(ada, "s2", "2025-03-10", "I moved to Bergen on 3 March 2025.")) == 1
    [bergen] = service.get("facts", user_id="ada", attribute="home").json()["facts"]
    named = {"user_id": "ada", "content": "User: I moved to Trondheim on 3 March 2025."}
    assert derivations(lambda: service.patch(f"facts/{bergen['fact_id']}", **named)) == 1
    [made] = service.get("corrections", user_id="ada").json()["corrections"]
    undo = f"corrections/{made['correction_id']}/undo"
    assert derivations(lambda: service.post(undo, user_id="ada")) == 1
    session = Session.objects.get(session_id="s2")
    assert derivations(lambda: retract(session, None, reason="mistaken", requested_by="test")) == 1
    assert derivations(lambda: undo_retraction(Retraction.objects.get(), requested_by="test")) == 1
    ada.refresh_from_db()
    assert "Bergen" in ada.summary and "Oslo" not in ada.summary


def test_rewinding_a_formation_restores_the_profile(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    again = say(ada, "s2", "2025-03-10", "I moved to Bergen on 3 March 2025.")
    ada.refresh_from_db()
    assert "Bergen" in ada.summary and "Oslo" not in ada.summary
    with transaction.atomic():
        assert FormMemories().rewind(again)
        ada.refresh_from_db()
        assert "Oslo" in ada.summary and "Bergen" not in ada.summary


class TestEdits:
    """Edits by an operator or the application."""

    @pytest.mark.slow
    def test_a_patch_opens_the_profile_and_the_next_one_replaces_it(self, ada: UserProfile, service: Api) -> None:
        say(ada, "s1", "2025-01-10", "I live in Oslo.")
        for text in ("Likes tea. Answer briefly.", "Likes coffee."):
            summary = service.patch("users/ada", summary=text).json()["summary"]
            assert summary.split("\n")[0] == text and "I live in Oslo." in summary
        assert "tea" not in summary
        before, now = MemoryAtom.objects.of_profile().order_by("pk")
        assert (before.state, now.state, now.is_pinned) == ("ended", "active", True)
        assert before.ended_by == now.written_by and now.written_by.startswith("key:")
        service.patch("users/ada", summary="")
        assert "coffee" not in service.get("users/ada").json()["summary"]

    def test_a_text_that_differs_only_in_marks_or_case_replaces_the_other(self, ada: UserProfile, service: Api) -> None:
        for summary, interest in (("Still Ada.", "kilns"), ("still Ada!", "Kilns")):
            service.patch("users/ada", summary=summary, interests=[interest])
            profile = service.get("users/ada").json()
            assert (profile["summary"], profile["interests"]) == (summary, [interest])

    @pytest.mark.slow
    def test_words_with_different_meaningful_marks_are_distinguished(self, ada: UserProfile, service: Api) -> None:
        for interests in (["C", "C++", "C#"], ["C", "C#"]):
            assert service.patch("users/ada", interests=interests).json()["interests"] == interests
        fact = note(MemoryStream.objects.ensure_of_person(ada, "default"), "Ada programs games in C at night.", "fact")
        for pair in (("C", "C++"), ("C++", "C")):
            service.patch("users/ada", summary="")
            fact.content, summary = (f"Ada programs games in {name} at night." for name in pair)
            fact.save()
            service.patch("users/ada", summary=summary)
            context = everywhere(service)["context"]
            assert all(f"games in {name} at" in context for name in pair)

    def test_an_empty_edit_keeps_derived_text(self, ada: UserProfile, service: Api) -> None:
        say(ada, "s1", "2025-01-10", "I love painting and I live in Oslo.")
        before = service.get("users/ada").json()
        assert "Oslo" in before["summary"] and before["interests"]
        for field, empty in (("summary", ""), ("interests", [])):
            answer = service.patch("users/ada", **{field: empty}).json()
            assert (answer["summary"], answer["interests"]) == (before["summary"], before["interests"])

    def test_an_interest_that_a_statement_names_is_added_and_removed(self, ada: UserProfile, service: Api) -> None:
        note(MemoryStream.objects.ensure_of_person(ada, "default"), "User is interested in quantum computing.")
        for interests in (["quantum computing"], []):
            assert service.patch("users/ada", interests=interests).json()["interests"] == interests

    def test_interests_and_topics_are_added_and_removed(self, ada: UserProfile, service: Api) -> None:
        answer = service.patch("users/ada", interests=["Bees", "kilns, old"], preferred_topics=["rent"]).json()
        assert (answer["interests"], answer["preferred_topics"]) == (["Bees", "kilns, old"], ["rent"])
        facts = service.get("facts", user_id="ada").json()["facts"]
        assert {fact["content"] for fact in facts} >= {"User is interested in Bees.", "User likes to talk about rent."}
        kept = MemoryAtom.objects.get(value="Bees").pk
        answer = service.patch("users/ada", interests=["Bees", "boats"]).json()
        assert (answer["interests"], answer["preferred_topics"]) == (["Bees", "boats"], ["rent"])
        assert MemoryAtom.objects.active().get(value="Bees").pk == kept

    def test_written_text_is_in_a_context_once(self, ada: UserProfile, service: Api) -> None:
        service.patch("users/ada", summary="Nora is a potter.", interests=["bees"])
        context = everywhere(service)["context"]
        assert context.count("Nora is a potter.") == 1 and context.count("bees") == 1

    def test_a_statement_that_the_stream_has_already_is_pinned(self, ada: UserProfile, service: Api) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        note(stream, "Nora is a potter.", "fact", about_kind="user")
        assert service.patch("users/ada", summary="Nora is a potter.").json()["summary"] == "Nora is a potter."
        assert MemoryAtom.objects.get().is_pinned

    def test_a_written_statement_can_be_corrected(self, ada: UserProfile, service: Api) -> None:
        service.patch("users/ada", summary="Nora has a cat. She is called Maya.")
        [fact] = service.get("facts", user_id="ada").json()["facts"]
        service.patch(f"facts/{fact['fact_id']}", user_id="ada", content="Nora has a cat. She is called Mia.")
        assert service.get("users/ada").json()["summary"] == "Nora has a cat. She is called Mia."
        service.patch("users/ada", summary="Nora has no cat.")
        assert service.get("users/ada").json()["summary"] == "Nora has no cat."

    def test_row_9_an_edit_changes_only_the_profile_of_its_person(self, ada: UserProfile, bo: UserProfile) -> None:
        written(ada, summary="Ada has a kiln.", interests=["kilns"])
        written(bo, summary="Bo has a boat.")
        bo.refresh_from_db()
        ada.refresh_from_db()
        assert (bo.summary, bo.interests, ada.summary) == ("Bo has a boat.", [], "Ada has a kiln.")
        assert MemoryAtom.objects.get(user=bo).content == "Bo has a boat."


@pytest.mark.slow
def test_row_10_a_retraction_removes_only_lines_of_the_turn_from_the_profile(ada: UserProfile, service: Api) -> None:
    session = talk(ada, 1, text="I have a dog named Pepper.")
    form(session)
    say(ada, "s2", "2025-01-10", "My sister Marla lives in Lisbon.")
    before = service.get("users/ada").json()["summary"]
    retraction = retract(session, [0], reason="mistaken", requested_by="test")
    work_off()
    summary = service.get("users/ada").json()["summary"]
    assert "Pepper" in before and "Pepper" not in summary and "Marla" in summary
    undo_retraction(retraction, requested_by="test")
    assert service.get("users/ada").json()["summary"] == before


@pytest.mark.slow
def test_written_text_stays_however_much_is_known(ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    interest = {"attribute": "interest", "value": "kilns", "formed_at": START}
    atoms = [MemoryAtom(stream=stream, user=ada, atom_type="fact", content="User is interested in kilns.", **interest)]
    atoms += [
        MemoryAtom(stream=stream, user=ada, atom_type="fact", content=f"Ida{n} is my cousin.", worth=1.0)
        for n in range(READ)
    ]
    for number, atom in enumerate(atoms):
        atom.content_hash, atom.about_kind = str(number), "user"
    MemoryAtom.objects.bulk_create(atoms)
    rebuild_profiles([ada.pk])
    ada.refresh_from_db()
    assert ada.interests == ["kilns"] and "Ida" in ada.summary


@pytest.mark.slow
def test_a_profile_takes_a_constant_number_of_queries_and_an_index(ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")

    def add(count: int) -> None:
        atoms = [
            MemoryAtom(stream=stream, user=ada, atom_type="fact", content=f"Fact {n} of {count}.", formed_at=START)
            for n in range(count)
        ]
        for atom in atoms:
            atom.content_hash = f"{count} {atom.content}"
        MemoryAtom.objects.bulk_create(atom.describe() for atom in atoms)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            rebuild_profiles([ada.pk])
        return len(captured)

    add(3)
    few = queries()
    add(3_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_memoryatom")
    assert queries() == few
    plan = MemoryAtom.objects.current().of_person(ada).about_user().in_profile()[:10].explain()
    assert "atom_in_profile" in plan, plan
