"""Other people whom a user's memory knows: found in statements, each with a profile derived from these."""

import zipfile
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from moments_app.engines.statements.named_people import named_person
from moments_app.models import Cause, KnownPerson, MemoryAtom, MemoryStream
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.recall.query import with_names
from moments_app.streams.timeline import recompute_timelines
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.row_security import acting_for
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.jobs import work_off
from tests.support.lives import say
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import list_url, page
from tests.support.streams import note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def people(service: Api, user_id: str = "ada", **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"users/{user_id}/people", **asked).json()["people"]
    return found


def known(service: Api) -> dict[str, tuple[str, str]]:
    """Return names and relationships by key."""
    return {person["key"]: (person["name"], person["relationship"]) for person in people(service)}


def profile(service: Api, key: str) -> str:
    return str(service.get(f"users/ada/people/{key}").json()["summary"])


class TestOwn:
    """A user never gets the known people of another user."""

    def test_row_9_people_known_to_another_user_look_unknown(
        self, service: Api, as_ada: Api, ada: UserProfile, bo: UserProfile
    ) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna lives in Bergen.")
        say(bo, "s1", "2025-01-10", "My dentist Dr. Weiss has moved.")
        assert [one["key"] for one in people(service)] == ["anna"]
        assert [one["key"] for one in people(service, "bo")] == ["dr-weiss"]
        assert service.get("users/bo/people/anna").status_code == 404
        assert service.get("users/ada/people/dr-weiss").status_code == 404
        assert as_ada.get("users/ada/people/anna").status_code == 200
        assert as_ada.get("users/bo/people").json()["people"] == []
        assert as_ada.get("users/bo/people/dr-weiss").status_code == 404
        assert service.get("facts", user_id="bo", about="anna").json()["facts"] == []
        assert service.get("users/ada/people", after="dr-weiss").status_code == 404

    def test_row_9_an_unfiltered_query_does_not_see_people_known_to_others(
        self, ada: UserProfile, bo: UserProfile
    ) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna lives in Bergen.")
        for person, number in (("ada", 1), ("bo", 0), (None, 0)):
            with acting_for(person, application=DEFAULT):
                assert KnownPerson.objects.count() == number


class TestNamed:
    """Which person a sentence names, and their relationship."""

    @pytest.mark.parametrize(
        ("text", "name", "relationship"),
        [
            ("My sister Anna lives in Bergen.", "Anna", "sister"),
            ("Nora: My sister Anna Berg is allergic to nuts.", "Anna Berg", "sister"),
            ("My dentist Dr. Weiss has moved.", "Dr. Weiss", "dentist"),
            ("Dr. Weiss is my dentist.", "Dr. Weiss", "dentist"),
            ("I have a little brother called Tom.", "Tom", "brother"),
            ("My mom's name is Ruth.", "Ruth", "mother"),
            ("I went to Oslo with my best friend Clara's dog.", "Clara", "friend"),
            ("Meine Schwester Anna wohnt in Bergen.", "Anna", "sister"),
            ("Mein Zahnarzt heißt Dr. Weiss.", "Dr. Weiss", "dentist"),
            ("Mi hermana se llama Lucía.", "Lucía", "sister"),
            ("Ma sœur Claire habite à Lyon.", "Claire", "sister"),
            ("我的妹妹叫小红，住在上海。", "小红", "sister"),
            ("Мою сестру зовут Анна.", "Анна", "sister"),
            ("I have a daughter, Ida.", "Ida", "daughter"),
            ("Lotte is a friend of mine.", "Lotte", "friend"),
        ],
    )
    def test_a_name_with_a_relationship_is_found(self, text: str, name: str, relationship: str) -> None:
        assert named_person(text) == (name, relationship, "")

    def test_in_the_third_person_the_relative_is_found(self) -> None:
        assert named_person("Nora's sister Anna lives in Bergen.") == ("Anna", "sister", "Nora")
        assert named_person("The user's dentist is called Dr. Weiss.") == ("Dr. Weiss", "dentist", "The user")

    @pytest.mark.parametrize(
        "text",
        [
            "This is my sister.",
            "She is my boss.",
            "My boss is Italian.",
            "My husband and I went to Oslo.",
            "I see my dentist Monday.",
            "Oslo is my sister's home.",
            "Ich fahre, weil meine Frau Urlaub hat.",
            "My dog Rex barks.",
            "Walt is a friend of Nora's dad.",
        ],
    )
    def test_other_words_are_not_names(self, text: str) -> None:
        assert named_person(text) is None


class TestKnown:
    """Who is known, and what is known about them."""

    def test_a_named_person_has_a_profile_from_statements_about_them(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse in Oslo. My dentist Dr. Weiss is very kind to me.")
        say(ada, "s2", "2025-02-10", "Anna moved to Bergen.")
        assert known(service) == {"dr-weiss": ("Dr. Weiss", "dentist"), "anna": ("Anna", "sister")}
        assert "nurse in Oslo" in profile(service, "anna") and "moved to Bergen" in profile(service, "anna")
        assert "kind" not in profile(service, "anna")
        answer = service.get("users/ada/people/anna").json()
        assert {*answer} == {
            *("key", "name", "aliases", "relationship", "created_at", "summary", "interests", "preferred_topics")
        }

    def test_statements_about_relatives_stay_in_the_users_profile(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse in Bergen. I live in Oslo.")
        summary = service.get("users/ada").json()["summary"]
        assert "Anna" in summary and "I live in Oslo" in summary

    def test_facts_are_filtered_by_the_person_that_they_are_about(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. I live in Oslo.")
        say(ada, "s2", "2025-02-10", "Anna moved to Bergen.")

        def facts(about: str) -> list[str]:
            return [one["content"] for one in service.get("facts", user_id="ada", about=about).json()["facts"]]

        assert facts("anna") == ["User: Anna moved to Bergen.", "User: My sister Anna is a nurse."]
        assert facts("user") == ["User: I live in Oslo.", "User: My sister Anna is a nurse."]
        assert facts("tom") == []
        about = {one["content"]: one["about"] for one in service.get("facts", user_id="ada").json()["facts"]}
        assert (about["User: Anna moved to Bergen."], about["User: I live in Oslo."]) == ("anna", None)

    def test_two_people_with_one_name_are_distinguished(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. My colleague Anna is a vegan.")
        assert known(service) == {"anna-2": ("Anna", "colleague"), "anna": ("Anna", "sister")}
        assert "nurse" in profile(service, "anna") and "vegan" not in profile(service, "anna")
        assert "vegan" in profile(service, "anna-2") and "nurse" not in profile(service, "anna-2")
        assert [one["key"] for one in people(service, name="anna")] == ["anna-2", "anna"]
        say(ada, "s2", "2025-02-10", "Anna moved to Bergen.")  # it is unknown which Anna
        assert MemoryAtom.objects.get(content__contains="Bergen").about is None

    def test_the_home_of_one_does_not_end_that_of_a_namesake(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. My colleague Anna is a vegan.")
        sister, colleague = KnownPerson.objects.order_by("pk")
        homes = {sister: "Anna lives in Oslo.", colleague: "Anna lives in Turin."}
        for person, text in homes.items():
            note(stream, text, "fact", about=person, subject="Anna", attribute="home")
        with transaction.atomic():
            recompute_timelines(MemoryAtom.objects.filter(attribute="home"), Cause("test"))
        assert MemoryAtom.objects.active().filter(attribute="home").count() == 2
        note(stream, "Anna moved to Rome.", "fact", about=sister, subject="Anna", attribute="home")
        with transaction.atomic():
            recompute_timelines(MemoryAtom.objects.filter(about=sister, attribute="home"), Cause("test"))
        ended = MemoryAtom.objects.get(state="ended")
        assert (ended.about, ended.content) == (sister, "Anna lives in Oslo.")

    def test_a_person_is_found_by_full_and_short_names(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse.")
        say(ada, "s2", "2025-02-10", "My sister Anna Berg has a new house.")
        [anna] = people(service)
        assert (anna["key"], anna["name"], anna["aliases"]) == ("anna", "Anna Berg", ["Anna"])
        for name in ("Anna", "anna berg", "BERG"):
            assert [one["key"] for one in people(service, name=name)] == ["anna"]
        assert people(service, name="Ann") == []

    def test_statements_before_an_introduction_are_about_the_same_person(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "Anna moved to Bergen.")
        assert people(service) == []
        say(ada, "s2", "2025-02-10", "My sister Anna is a nurse.")
        assert "moved to Bergen" in profile(service, "anna")

    def test_statements_before_an_introduction_in_the_same_turn_too(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "Anna moved to Bergen. My sister Anna is a nurse.")
        assert "moved to Bergen" in profile(service, "anna")

    def test_statements_written_by_a_client_name_people(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        body = {"user_id": "ada", "atom_type": "fact", "content": "My dentist is called Dr. Weiss."}
        service.post(f"streams/{stream.stream_id}/atoms", body)
        assert known(service) == {"dr-weiss": ("Dr. Weiss", "dentist")}

    def test_relatives_of_others_are_not_the_users_relatives(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        for text in ("My name is Nora.", "Nora's sister Anna is a nurse.", "Clara's brother Tom is a cook."):
            service.post(f"streams/{stream.stream_id}/atoms", user_id="ada", atom_type="fact", content=text)
        assert known(service) == {"anna": ("Anna", "sister")}

    def test_pages_continue_after_the_last_key(self, service: Api, ada: UserProfile) -> None:
        for number, name in enumerate(("Anna", "Bea", "Clara")):
            say(ada, f"s{number}", "2025-01-10", f"My cousin {name} is a nurse.")
        first = service.get("users/ada/people", limit=2).json()
        assert [one["key"] for one in first["people"]] == ["clara", "bea"]
        assert (first["total"], first["has_more"]) == (3, True)
        rest = service.get("users/ada/people", limit=2, after="bea").json()
        assert ([one["key"] for one in rest["people"]], rest["has_more"]) == (["anna"], False)

    @pytest.mark.slow
    def test_people_and_facts_take_a_constant_number_of_queries(self, service: Api, ada: UserProfile) -> None:
        def queries() -> list[int]:
            counts = []
            for address in ("users/ada/people", "users/ada/people/anna"):
                with CaptureQueriesContext(connection) as captured:
                    assert service.get(address).status_code == 200
                counts.append(len(captured))
            return counts

        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse.")
        queries()
        few = queries()
        for number in range(5):
            say(ada, f"t{number}", "2025-01-11", f"My cousin Ida{number} is a cook. My sister Anna has {number} cats.")
        assert queries() == few


class TestModel:
    """Statements written by a language model."""

    def test_the_model_names_the_person_that_a_statement_is_about(
        self, service: Api, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        facts = [
            ("Nora plays the cello.", ""),
            ("User's name is Nora.", "Nora"),
            ("Nora's sister Anna lives in Bergen.", "Anna"),
            ("Anna is allergic to nuts.", "Anna"),
            ("Dr. Weiss is a dentist in Turin.", "Dr. Weiss"),
            ("She moved to Rome.", "Clara"),
        ]
        lines = [f"other 0{f' about {name}' if name else ''}: {text}" for text, name in facts]
        model_server.queue(behave.memories({"stream": "user", "statements": lines}))
        say(ada, "s1", "2025-01-10", " ".join(text for text, _ in facts) + " My name is Nora.")
        assert known(service) == {"dr-weiss": ("Dr. Weiss", ""), "anna": ("Anna", "sister")}
        assert "nuts" in profile(service, "anna") and "Bergen" in profile(service, "anna")
        own = service.get("users/ada").json()["summary"]
        assert "cello" in own and "Bergen" in own and "nuts" not in own and "Turin" not in own

    def test_statements_of_a_model_state_relationships(
        self, service: Api, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        lines = [
            "relationship 0: Idris is Nora's husband.",
            "identity 0: The user's name is Nora.",  # may follow, because one answer covers many turns
            "relationship 0 about Priya: Nora's best friend is Priya.",
            "relationship 0 about Lotte: Lotte is a colleague of Nora from the archive.",
            "relationship 0 about Walt: Walt is a friend of Nora's father.",
        ]
        model_server.queue(behave.memories({"stream": "user", "statements": lines}))
        said = " ".join(line.partition(": ")[2] for line in lines)
        say(ada, "s1", "2025-01-10", said)
        assert dict(known(service).values()) == {
            "Idris": "husband",
            "Priya": "friend",
            "Lotte": "colleague",
            "Walt": "",
        }


class TestSearch:
    """Searching what is known about one person."""

    @pytest.fixture(autouse=True)
    def _told(self, ada: UserProfile, bo: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse in Bergen. My colleague Anna is a vegan in Bergen.")
        say(ada, "s2", "2025-01-11", "I live in Bergen with two cats. Kilns are old in Bergen and burn every Friday.")
        say(bo, "s1", "2025-01-10", "My sister Anna is a potter in Bergen.")

    def search(self, service: Api, about: str, user_id: str = "ada", **asked: Any) -> set[str]:
        body = {"user_id": user_id, "query": "Who is in Bergen?", "about": about, "match_count": 50} | asked
        answer = service.post("memory/search", body)
        assert answer.status_code == 200, answer.content
        assert {one["kind"] for one in answer.json()["results"]} <= {"fact"}
        return {one["content"] for one in answer.json()["results"]}

    @pytest.mark.slow
    def test_row_9_people_known_to_another_user_are_not_searched(self, service: Api) -> None:
        assert self.search(service, "anna", "bo") == {"User: My sister Anna is a potter in Bergen."}
        assert self.search(service, "anna-2", "bo") == set()

    def test_only_facts_about_this_person_are_found(self, service: Api) -> None:
        assert self.search(service, "anna") == {"User: My sister Anna is a nurse in Bergen."}
        assert self.search(service, "anna-2") == {"User: My colleague Anna is a vegan in Bergen."}
        assert self.search(service, "anna", kinds=["turn", "moment"]) == set()
        of_user = self.search(service, "user")
        assert "User: I live in Bergen with two cats." in of_user and not any("Kilns" in text for text in of_user)

    @pytest.mark.slow
    def test_facts_are_found_among_many_better_matches(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        for number in range(120):
            note(stream, f"Who is in Bergen? Bergen {number}.", "fact")
        assert self.search(service, "anna", match_count=5) == {"User: My sister Anna is a nurse in Bergen."}

    @pytest.mark.slow
    def test_the_filter_applies_to_the_past_and_to_text_mode(self, service: Api) -> None:
        assert self.search(service, "anna", as_of="2025-01-10") == {"User: My sister Anna is a nurse in Bergen."}
        assert self.search(service, "anna", as_of="2025-01-09") == set()
        assert len(self.search(service, "anna", mode="text")) == 1


class TestNames:
    """The names of known people are added to relationships in a question."""

    @pytest.fixture(autouse=True)
    def family(self, ada: UserProfile, bo: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My name is Nora. My husband Idris is a cook.")
        say(ada, "s2", "2025-01-11", "My daughter Nell plays the cornet. My daughter Ida swims. My sister Bea is here.")
        say(bo, "s1", "2025-01-10", "My husband Tom is a cook.")

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("Where does my husband work?", "Where does my husband (Idris) work?"),
            ("What do my partner and my sister like?", "What do my partner (Idris) and my sister (Bea) like?"),
            ("What do my daughters do?", "What do my daughters (Ida, Nell) do?"),
            ("What does my child Nell play?", "What does my child (Ida) Nell play?"),
            ("Was arbeitet mein Mann?", "Was arbeitet mein Mann (Idris)?"),
            ("Who is Bea's husband?", "Who is Bea's husband?"),
            ("Who is Nora's husband?", "Who is Nora's husband (Idris)?"),
            ("What do my daughters do? And my daughter?", "What do my daughters (Ida, Nell) do? And my daughter?"),
            ("¿Qué hace mi marido?", "¿Qué hace mi marido (Idris)?"),
            ("Que fait mon mari ?", "Que fait mon mari (Idris) ?"),
            ("Где работает мой муж?", "Где работает мой муж (Idris)?"),
            ("我的丈夫在哪里工作？", "我的丈夫 (Idris)在哪里工作？"),
            ("¿Cuáles son mis planes?", "¿Cuáles son mis planes?"),
            ("Where does his husband work?", "Where does his husband work?"),
            ("Does my sıster, FRİEND of Bea, cook?", "Does my sıster, FRİEND of Bea, cook?"),
            ("Does my brother cook?", "Does my brother cook?"),
            ("What did we cook?", "What did we cook?"),
        ],
    )
    def test_row_9_names_come_from_the_persons_own_memory(self, query: str, expected: str) -> None:
        with CaptureQueriesContext(connection) as queries:
            assert with_names(query * 20, "ada", application=DEFAULT).startswith(expected)
        assert len(queries) <= 8

    @pytest.mark.slow
    def test_a_question_without_the_name_finds_statements_with_the_name(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s3", "2025-02-10", "Idris starts at the college on Monday.")
        asked = {"user_id": "ada", "query": "When does my husband start?", "mode": "text"}
        found = service.post("memory/search", **asked).json()["results"]
        assert "Idris starts at the college" in found[0]["content"]
        context = service.get("memory/context", user_id="ada", session_id="s9", query=asked["query"]).json()
        [retrieved] = [layer for layer in context["layers"] if layer["name"] == "retrieved"]
        assert "Idris starts at the college" in str(retrieved)
        [query] = [layer for layer in context["layers"] if layer["name"] == "query"]
        assert "Idris" not in str(query)


class TestView:
    """The view follows corrections, endings, retractions, exports and erasures."""

    @pytest.mark.slow
    def test_a_correction_and_its_undo_take_effect_immediately(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse.")
        [fact] = service.get("facts", user_id="ada", about="anna").json()["facts"]
        right = "User: My cousin Anna is a cook."
        made = service.patch(f"facts/{fact['fact_id']}", user_id="ada", content=right).json()
        assert known(service) == {"anna": ("Anna", "cousin")}
        assert "cook" in profile(service, "anna") and "nurse" not in profile(service, "anna")
        service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
        assert known(service) == {"anna": ("Anna", "sister")} and "nurse" in profile(service, "anna")

    def test_correcting_the_spelling_of_a_name_keeps_its_key(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse.")
        [fact] = service.get("facts", user_id="ada", about="anna").json()["facts"]
        service.patch(f"facts/{fact['fact_id']}", user_id="ada", content="User: My sister Hanna is a nurse.")
        [hanna] = people(service)
        assert (hanna["key"], hanna["name"], hanna["aliases"]) == ("anna", "Hanna", [])

    @pytest.mark.slow
    def test_withdrawn_and_ended_relations_are_not_listed(self, service: Api, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My dentist Dr. Weiss is kind. My sister Anna is a nurse.")
        facts = {one["about"]: one["fact_id"] for one in service.get("facts", user_id="ada").json()["facts"]}
        service.patch(f"facts/{facts['dr-weiss']}", user_id="ada", state="ended")
        assert known(service) == {"anna": ("Anna", "sister"), "dr-weiss": ("Dr. Weiss", "")}
        assert profile(service, "dr-weiss") == ""
        service.delete(f"facts/{facts['anna']}", user_id="ada")
        assert known(service) == {"dr-weiss": ("Dr. Weiss", "")}
        assert service.get("users/ada/people/anna").status_code == 404

    @pytest.mark.slow
    def test_row_10_a_retraction_removes_known_people_and_an_undo_restores_them(
        self, service: Api, ada: UserProfile
    ) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna Berg is a nurse.")
        say(ada, "s2", "2025-02-10", "My sister Anna is a vegan. My dentist Dr. Weiss is kind.")
        before = [service.get(f"users/ada/people/{one['key']}").json() for one in people(service)]
        first = retract(Session.objects.get(session_id="s1"), None, reason="mistaken", requested_by="test")
        work_off()
        assert known(service) == {"anna-berg": ("Anna", "sister"), "dr-weiss": ("Dr. Weiss", "dentist")}
        second = retract(Session.objects.get(session_id="s2"), None, reason="mistaken", requested_by="test")
        work_off()
        assert people(service) == [] and not KnownPerson.objects.exists()
        for retraction in (second, first):
            undo_retraction(retraction, requested_by="test")
        assert [service.get(f"users/ada/people/{one['key']}").json() for one in people(service)] == before

    @pytest.mark.slow
    def test_a_person_named_again_after_a_retraction_stays_one_person_after_its_undo(
        self, service: Api, ada: UserProfile
    ) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. My cousin Tom is a cook.")
        made = retract(Session.objects.get(session_id="s1"), None, reason="mistaken", requested_by="test")
        say(ada, "s2", "2025-02-10", "My sister Anna is a vegan. My friend Tom is a potter.")
        undo_retraction(made, requested_by="test")
        assert known(service) == {
            "anna": ("Anna", "sister"),
            "tom": ("Tom", "friend"),
            "tom-2": ("Tom", "cousin"),
        }
        assert "nurse" in profile(service, "anna") and "vegan" in profile(service, "anna")

    @pytest.mark.slow
    def test_an_import_restores_known_people(self, service: Api, ada: UserProfile, tmp_path: Any) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. My colleague Anna is a vegan.")
        before = [service.get(f"users/ada/people/{key}").json() for key in ("anna", "anna-2")]
        path = tmp_path / "ada.zip"
        with path.open("wb") as file:
            assert export_user("ada", file, application=DEFAULT)["people"] == 2
        erase_user("ada", application=DEFAULT, actor="test")
        assert not KnownPerson.objects.exists()
        import_user(path, application=DEFAULT)
        assert [service.get(f"users/ada/people/{key}").json() for key in ("anna", "anna-2")] == before

    @pytest.mark.slow
    def test_known_people_are_found_in_exports_of_earlier_releases(
        self, service: Api, ada: UserProfile, tmp_path: Any
    ) -> None:
        say(ada, "s1", "2025-01-10", "My sister Anna is a nurse. My colleague Anna is a vegan.")
        before = known(service), profile(service, "anna"), profile(service, "anna-2")
        path, older = tmp_path / "ada.zip", tmp_path / "older.zip"
        with path.open("wb") as file:
            export_user("ada", file, application=DEFAULT)
        with zipfile.ZipFile(path) as new, zipfile.ZipFile(older, "w") as old:
            for name in new.namelist():
                if name != "people.jsonl":
                    old.writestr(name, new.read(name).decode().replace(', "about": "anna', ', "about": "gone'))
        erase_user("ada", application=DEFAULT, actor="test")
        import_user(older, application=DEFAULT)
        assert (known(service), profile(service, "anna"), profile(service, "anna-2")) == before

    @pytest.mark.slow
    def test_an_upgrade_finds_known_people_in_statements(self, service: Api, ada: UserProfile, bo: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "My name is Nora. My sister Anna Berg is a nurse. My colleague Anna is a vegan.")
        say(ada, "s2", "2025-02-10", "Nora's cousin Tom is a cook. Tom moved to Bergen. My sister Anna is tall.")
        say(bo, "s1", "2025-01-10", "My sister Anna is a potter.")
        before = [service.get(f"users/ada/people/{key}").json() for key in ("anna-berg", "anna", "tom")]
        KnownPerson.objects.all().delete()
        assert people(service) == []
        migration = import_module("moments_app.migrations.0112_people_of_statements")
        for _ in range(2):
            migration.write(apps, None)
            after = [service.get(f"users/ada/people/{key}").json() for key in ("anna-berg", "anna", "tom")]
            for one, other in zip(after, before, strict=True):
                assert one | {"created_at": ""} == other | {"created_at": ""}
        assert [one["key"] for one in people(service, "bo")] == ["anna"]


def test_the_list_of_operators_omits_people_with_withdrawn_statements(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "My sister Anna lives in Bergen.")
    root = operator()
    assert "Anna" in page(root, list_url(KnownPerson))
    MemoryAtom.objects.update(is_wrong=True)
    assert KnownPerson.objects.exists() and "Anna" not in page(root, list_url(KnownPerson))
