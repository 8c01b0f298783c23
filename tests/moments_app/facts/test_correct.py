"""Correcting, ending or withdrawing a fact once changes everything that says the same. An undo restores all of it."""

from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection, transaction

from moments_app.jobs.runner import run_job
from moments_app.models import CorrectedTurn, Job, MemoryAtom, MemoryStream, Moment
from moments_app.provenance.correct import correct, replacement_request
from moments_app.provenance.rewording import Rewording
from moments_app.turns.engine_input import as_corrected
from sessions_app.models import Message, Session, UserProfile
from sessions_app.retention.retain import retain
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import wait_until_somebody_waits
from tests.support.jobs import build
from tests.support.kept_rows import KeptRows
from tests.support.lives import MAYA, OSLO, say
from tests.support.openai_server import OpenAIServer
from tests.support.retention import cover
from tests.support.streams import fold_while, form, note, rewrite, shard, written
from tests.support.transcript import arrived_when_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

RIGHT = "User: My daughter is called Mia."


@pytest.fixture
def told(transactional_db: None, forming: None, kept_rows: KeptRows) -> UserProfile:
    """Ada, with a name in two turns, a fact, an observation, a moment, a text of an operator, and that of a stream."""
    kept_rows.have("told", lambda: tell(UserProfile.objects.ensure("ada")))
    return UserProfile.objects.get(user_id="ada")


def tell(user: UserProfile) -> None:
    say(user, "s1", "2025-01-20", "My daughter is called Maya.")
    say(user, "s2", "2025-01-25", "Maya started school today, I was so proud of her.")
    build(Session.objects.get(user=user, session_id="s1"), lag=0)
    Moment.objects.filter(user=user).update(summary="User tells that their daughter is called Maya.")
    written(user, summary=f"{OSLO} {MAYA} They like tea.", interests=["Maya", "tea"])
    stream = MemoryStream.objects.get(user=user, stream_type="user")
    rewrite(stream, "- Maya is User's daughter.\n- Likes tea.")
    note(stream, "Maya is afraid of dogs.")
    note(stream, "A friend of the family is called Mayara.")


def everything(user: UserProfile) -> str:
    """Return all texts of memory about the present."""
    facts = MemoryAtom.objects.active().filter(user=user).in_order().values_list("content", flat=True)
    moments = Moment.objects.filter(user=user).order_by("pk").values_list("summary", "detail")
    texts = MemoryStream.objects.filter(user=user).order_by("pk").values_list("consolidated_content", flat=True)
    user.refresh_from_db()
    return str([*facts, *moments, *texts, user.summary, user.interests])


def the_fact(content: str = MAYA) -> str:
    return str(MemoryAtom.objects.get(content=content, stream__stream_type="user").atom_id)


@pytest.mark.slow
def test_a_preview_shows_everything_that_says_the_same_thing_and_changes_nothing(
    told: UserProfile, service: Api
) -> None:
    before = everything(told)
    answer = service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT, preview=True).json()
    kinds = [change["kind"] for change in answer["changes"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "fact": 5,
        "stream": 1,
        "moment": kinds.count("moment"),
        "event": 1,
        "turn": 2,
    }
    assert kinds.count("moment") >= 1
    assert answer["correction_id"] is None
    assert everything(told) == before and not CorrectedTurn.objects.exists()


@pytest.mark.slow
def test_one_confirmation_corrects_everything_and_one_undo_restores_it(told: UserProfile, service: Api) -> None:
    before, messages = everything(told), list(Message.objects.order_by("pk").values_list("kind", "content"))
    made = service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT).json()
    after = everything(told)
    assert "Maya" not in after.replace("Mayara", "") and after.count("Mia") >= 6 and "Mayara" in after
    assert Message.objects.turns().filter(content__contains="Maya").exists()
    assert not Message.objects.partitions().filter(content__contains="Maya").exists()
    assert service.get(f"corrections/{made['correction_id']}", user_id="ada").json()["changes"] == made["changes"]
    undone = service.post(f"corrections/{made['correction_id']}/undo", user_id="ada").json()
    assert undone["undone_at"] and everything(told) == before
    assert list(Message.objects.order_by("pk").values_list("kind", "content")) == messages
    assert not CorrectedTurn.objects.exists()
    assert service.post(f"corrections/{made['correction_id']}/undo", user_id="ada").status_code == 400


@pytest.mark.slow
def test_row_2_a_concurrent_consolidation_loses_no_correction(told: UserProfile, service: Api) -> None:
    """Neither a correction nor its undo is lost."""
    stream = MemoryStream.objects.get(user=told, stream_type="user")
    stream.atoms.waiting().delete()
    made: list[str] = []

    def correct() -> None:
        made.append(service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT).json()["correction_id"])

    note(stream, "They keep bees.")
    fold_while(stream, correct)
    stream.refresh_from_db()
    assert "They keep bees." in stream.consolidated_content and "Maya" not in stream.consolidated_content
    note(stream, "They plant hazel.")
    fold_while(stream, lambda: service.post(f"corrections/{made[0]}/undo", {"user_id": "ada"}))
    stream.refresh_from_db()
    for said in ("They keep bees.", "They plant hazel.", "Maya is User's daughter."):
        assert said in stream.consolidated_content


@pytest.mark.slow
def test_a_corrected_fact_is_not_derived_from_the_same_turns_again(told: UserProfile, service: Api) -> None:
    service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT)
    session = Session.objects.get(user=told, session_id="s1")
    Session.objects.filter(user=told).update(last_formation_sequence=None)
    for again in Session.objects.filter(user=told):
        form(again)
    Moment.objects.filter(user=told).delete()
    session.refresh_from_db()
    session.last_moment_message_idx = None
    session.save()
    build(session, lag=0)
    assert "Maya" not in everything(told).replace("Mayara", "")
    assert "Mia" in str(Moment.objects.filter(user=told).values_list("summary", "detail"))


@pytest.mark.slow
def test_a_fact_corrected_during_a_formation_is_not_derived_again(
    told: UserProfile, request: pytest.FixtureRequest
) -> None:
    model: OpenAIServer = request.getfixturevalue("model_server")
    session = Session.objects.get(user=told, session_id="s1")
    Session.objects.filter(pk=session.pk).update(last_formation_sequence=None)
    fact, is_corrected = MemoryAtom.objects.get(atom_id=the_fact()), Event()

    def correct_slowly() -> None:
        with transaction.atomic():
            correct(fact, replacement_request(RIGHT), requested_by="test")
            is_corrected.set()
            wait_until_somebody_waits()
        connection.close()

    def meanwhile(handler: Any, body: dict[str, Any]) -> None:
        other.start()
        is_corrected.wait()
        facts = [f"other 0: {MAYA}"]
        behave.memories({"stream": "user", "statements": facts})(handler, body)

    other = Thread(target=correct_slowly)
    model.queue(meanwhile)
    assert form(session).status == "completed"
    other.join()
    assert "Maya" not in everything(told).replace("Mayara", "")


@pytest.mark.slow
def test_corrected_turns_are_marked_in_searches_and_live_windows(told: UserProfile, service: Api) -> None:
    assert "corrected since" not in live_turns(service)
    service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT)
    found = service.post("memory/search", user_id="ada", query="started school", kinds=["turn"]).json()["results"]
    marked = "Maya started school today, I was so proud of her. (corrected since: Mia, not Maya)"
    assert found[0]["content"] == marked
    assert live_turns(service).count(marked) == live_turns(service).count("corrected since") == 1


def test_a_source_turn_with_different_wording_of_the_name_is_marked(ada: UserProfile) -> None:
    said = "Yup, I do - Oscar, my guinea pig, who came to us in May and eats nothing but parsley."
    session = say(ada, "s1", "2025-01-20", said).session
    assert session
    turn = session.messages.get(sequence=0)
    stream = MemoryStream.objects.get(user=ada, stream_type="user")
    fact = note(stream, "Nora's guinea pig is called Oscar.", source_message_ids=[turn.pk])
    correct(fact, replacement_request("Nora's guinea pig is called Otto."), requested_by="test")
    assert list(CorrectedTurn.objects.values_list("sequence", "wrong", "right")) == [(0, "Oscar", "Otto")]


@pytest.mark.slow
def test_a_correction_changes_only_one_sentence_of_a_turn(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "I'm a nurse in Oslo. I'm allergic to nuts.")
    fact = the_fact("User: I'm allergic to nuts.")
    assert service.patch(f"facts/{fact}", user_id="ada", content="User is allergic to eggs.").status_code == 200
    turn = as_corrected(list(Message.objects.turns().in_order()))[0]
    assert turn.content == "I'm a nurse in Oslo. User is allergic to eggs."


@pytest.mark.slow
def test_a_turn_reads_as_the_latest_of_several_corrections(ada: UserProfile, service: Api) -> None:
    said = "My name is Will. I will sail to Rome."
    session = say(ada, "s1", "2025-01-20", said).session
    assert session

    def rename(name: str) -> str:
        [fact] = service.get("facts", user_id="ada", attribute="name").json()["facts"]
        body = {"user_id": "ada", "content": f"User: My name is {name}."}
        return str(service.patch(f"facts/{fact['fact_id']}", **body).json()["correction_id"])

    def read() -> tuple[str, str]:
        turn = session.messages.get(sequence=0)
        asked = {"user_id": "ada", "query": "What is my name?", "kinds": ["turn"]}
        found = service.post("memory/search", **asked).json()["results"]
        return found[0]["content"].removeprefix(said), as_corrected([turn])[0].content

    rename("Willem")
    assert read() == (" (corrected since: Willem, not Will)", "My name is Willem. I will sail to Rome.")
    back = rename("Will")
    assert read() == ("", said)
    job = Job.objects.request("form_memories", session, requested_by="t", force=True, params={"again": [[0, 3]]})
    run_job(job.job_id)
    assert list(MemoryAtom.objects.current().filter(attribute="name").values_list("value", flat=True)) == ["Will"]
    service.post(f"corrections/{back}/undo", user_id="ada")
    assert read()[0] == " (corrected since: Willem, not Will)"
    rename("Wim")
    assert read() == (" (corrected since: Wim, not Will)", "My name is Wim. I will sail to Rome.")


@pytest.mark.slow
def test_a_corrected_fact_stays_ended_and_the_latest_correction_is_undone_first(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-20", "I live in Oslo.")

    def homes(state: str) -> list[str]:
        return [
            fact["value"] for fact in service.get("facts", user_id="ada", attribute="home", state=state).json()["facts"]
        ]

    address = f"facts/{the_fact(OSLO)}"
    ended = service.patch(address, user_id="ada", state="ended").json()
    made = service.patch(address, user_id="ada", content="User: I live in Bergen.").json()
    assert (homes("holding"), homes("ended")) == ([], ["Bergen", "Oslo"])
    refused = service.post(f"corrections/{ended['correction_id']}/undo", user_id="ada")
    assert refused.status_code == 400 and made["correction_id"] in refused.json()["errors"][0]["detail"]
    for correction in (made, ended):
        assert service.post(f"corrections/{correction['correction_id']}/undo", user_id="ada").status_code == 200
    assert (homes("holding"), homes("ended")) == (["Oslo"], [])


@pytest.mark.slow
def test_corrected_archived_turns_are_found_with_their_mark(told: UserProfile, service: Api) -> None:
    for session in Session.objects.filter(user=told):
        arrived_when_said(session)
        cover(session, session.message_count)
    assert retain().archived_turns == Message.objects.archived().count() > 0
    service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT)
    found = service.post("memory/search", user_id="ada", query="started school", kinds=["turn"]).json()["results"]
    assert found[0]["content"] == "Maya started school today, I was so proud of her. (corrected since: Mia, not Maya)"


def live_turns(service: Api) -> str:
    """Return a context of a session that has a turn with the name."""
    asked = {"user_id": "ada", "session_id": "s2", "layers": "hot_turns", "format": "markdown"}
    return str(service.get("memory/context", **asked).json()["context"])


@pytest.mark.slow
def test_unticked_texts_stay_although_they_say_the_same_thing(told: UserProfile, service: Api) -> None:
    shown = service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT, preview=True).json()
    profile = next(change["ref"] for change in shown["changes"] if change["before"].startswith(OSLO))
    service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT, leave=[profile])
    told.refresh_from_db()
    assert "Maya" in told.summary


@pytest.mark.slow
def test_what_was_known_before_a_correction_is_shown_as_of_then(told: UserProfile, service: Api) -> None:
    service.patch(f"facts/{the_fact()}", user_id="ada", content=RIGHT)
    then = service.get("facts", user_id="ada", attribute="daughter", as_of="2025-02-01").json()["facts"]
    now = service.get("facts", user_id="ada", attribute="daughter").json()["facts"]
    assert ([fact["value"] for fact in then], [fact["value"] for fact in now]) == (["Maya"], ["Mia"])
    [wrong] = service.get("facts", user_id="ada", attribute="daughter", state="ended").json()["facts"]
    assert wrong["is_wrong"] and wrong["replaced_by"] == now[0]["fact_id"]


@pytest.mark.slow
def test_an_ended_fact_leaves_the_profile_but_stays_in_past_descriptions(life: UserProfile, service: Api) -> None:
    home = service.get("facts", user_id="ada", attribute="home").json()["facts"][0]
    written(life, summary=f"{home['content']} They like tea.")
    body = {"user_id": "ada", "state": "ended", "valid_until": "2025-11-30T00:00:00Z"}
    made = service.patch(f"facts/{home['fact_id']}", **body).json()
    life.refresh_from_db()
    assert life.summary.startswith("They like tea.\n") and "Stavanger" not in life.summary
    assert {change["kind"] for change in made["changes"]} == {"fact"}
    assert service.get("facts", user_id="ada", attribute="home").json()["facts"] == []
    assert service.get(f"facts/{home['fact_id']}", user_id="ada").json()["valid_until"][:10] == "2025-11-30"
    service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
    assert [fact["value"] for fact in service.get("facts", user_id="ada", attribute="home").json()["facts"]] == [
        "Stavanger"
    ]


@pytest.mark.slow
def test_a_withdrawn_fact_disappears_and_the_fact_that_it_ended_is_valid_again(life: UserProfile, service: Api) -> None:
    home = service.get("facts", user_id="ada", attribute="home").json()["facts"][0]
    made = service.delete(f"facts/{home['fact_id']}", user_id="ada").json()
    assert made["kind"] == "withdrawn"
    assert [f["value"] for f in service.get("facts", user_id="ada", attribute="home").json()["facts"]] == ["Bergen"]
    service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
    assert [f["value"] for f in service.get("facts", user_id="ada", attribute="home").json()["facts"]] == ["Stavanger"]


@pytest.mark.slow
def test_a_past_fact_is_corrected_in_the_past(life: UserProfile, service: Api) -> None:
    service.patch(f"facts/{the_fact(OSLO)}", user_id="ada", content="User lives in Trondheim.")
    [now] = service.get("facts", user_id="ada", attribute="home").json()["facts"]
    assert now["value"] == "Stavanger"
    ended = service.get("facts", user_id="ada", attribute="home", state="ended").json()["facts"]
    spans = {fact["value"]: (fact["valid_until"][:10], fact["is_wrong"]) for fact in ended}
    assert spans["Trondheim"] == ("2025-03-03", False) and spans["Oslo"][1] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": "x", "state": "ended"},
        {"content": "x", "valid_until": "2025-01-01T00:00:00Z"},
        {"state": "ended", "valid_until": "2025-01-01"},
        {"content": ""},
        {"content": " \n"},
        {"said": "x"},
    ],
)
def test_a_patch_with_no_or_two_orders_is_rejected(ada: UserProfile, service: Api, body: Any) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    assert service.patch(f"facts/{the_fact(OSLO)}", user_id="ada", **body).status_code == 400


@pytest.mark.parametrize(
    ("line", "corrected"),
    [
        ("- Ada has a dog (2026-03-02)", "- Ada has a dog and a cat in Turin (2026-03-02)"),
        ("- [2026-03-02] Ada has a dog.", "- [2026-03-02] Ada has a dog and a cat in Turin."),
        ("She is kind. Ada has a dog. She sails.", "She is kind. Ada has a dog and a cat in Turin. She sails."),
    ],
)
def test_a_reworded_line_keeps_its_mark_and_its_day(line: str, corrected: str) -> None:
    assert Rewording("Ada has a dog.", "Ada has a dog and a cat in Turin.").apply_to(line) == corrected
    assert Rewording("Ada has a dog.", "").apply_to("- Ada has a dog (2026-03-02)") == ""


SENTENCES = [
    "Marla lives in Oslo.",
    "She moved there on 3 May 2021.",
    "She works as a nurse at the harbor.",
    "It is great.",
]
CORRECTED = [
    "Marla lives in Bergen.",
    "She moved there on 3 June 2021.",
    "She works as a teacher at the harbor.",
    "It is loud.",
]


def twins(user: UserProfile, text: str) -> MemoryAtom:
    """Create a fact in the person's stream, and the same fact, from the same turn, for the session and for a shard."""
    say(user, "s1", "2025-01-10", text)
    session = Session.objects.get(user=user, session_id="s1")
    turn = session.messages.turns().get(sequence=0)
    MemoryAtom.objects.filter(user=user).delete()
    sources = {"source_session": session, "source_message_ids": [turn.pk]}
    of_shard = {"is_candidate": True, "source_user": user, "user_id": user.pk}
    note(MemoryStream.objects.get(user=user, stream_type="session"), text, "fact", **sources)
    shard("guests").atoms.create(atom_type="fact", content=text, **sources, **of_shard)
    return note(MemoryStream.objects.get(user=user, stream_type="user"), text, "fact", **sources)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "place"), [(1, 0), (2, 0), (3, 1), (4, 2), (4, 3)])
def test_correcting_several_sentences_leaves_no_duplicate(
    ada: UserProfile, service: Api, count: int, place: int
) -> None:
    before = " ".join(SENTENCES[:count])
    after = " ".join([*SENTENCES[:place], CORRECTED[place], *SENTENCES[place + 1 : count]])
    fact = twins(ada, before)
    answer = service.patch(f"facts/{fact.atom_id}", user_id="ada", content=after)
    assert answer.status_code == 200
    assert list(MemoryAtom.objects.current().values_list("content", flat=True)) == [after] * 3
    assert [atom.user for atom in MemoryAtom.objects.current().candidates()] == [ada]
    service.post(f"corrections/{answer.json()['correction_id']}/undo", user_id="ada")
    assert list(MemoryAtom.objects.current().values_list("content", flat=True)) == [before] * 3


def test_a_directly_written_fact_is_corrected_in_turns_too(ada: UserProfile, service: Api) -> None:
    said = "Marla lives in a village near Elverum."
    say(ada, "s1", "2025-01-10", said)
    assert MemoryAtom.objects.current().filter(content__contains="Elverum").exists()
    fact = note(MemoryStream.objects.get(user=ada, stream_type="user"), said, "fact")
    service.patch(f"facts/{fact.atom_id}", user_id="ada", content=said.replace("Elverum", "Hamar"))
    assert not MemoryAtom.objects.current().filter(content__contains="Elverum").exists()


@pytest.mark.parametrize("state", ["ended", "withdrawn"])
def test_ending_a_fact_of_several_sentences_leaves_no_duplicate(ada: UserProfile, service: Api, state: str) -> None:
    fact = twins(ada, " ".join(SENTENCES))
    if state == "ended":
        service.patch(f"facts/{fact.atom_id}", user_id="ada", state="ended")
    else:
        service.delete(f"facts/{fact.atom_id}", user_id="ada")
    assert not MemoryAtom.objects.current().exists()


def test_one_of_several_sentences_is_corrected_everywhere() -> None:
    rewording = Rewording(" ".join(SENTENCES), " ".join([*SENTENCES[:1], CORRECTED[1], *SENTENCES[2:]]))
    assert (
        rewording.apply_to("She moved there on 3 May 2021, with a dog.")
        == "She moved there on 3 June 2021, with a dog."
    )
    assert (
        rewording.apply_to("Marla is kind. She moved there on 3 May 2021.")
        == "Marla is kind. She moved there on 3 June 2021."
    )
    for other in (*SENTENCES[:1], *SENTENCES[2:], "Bo moved there on 3 May 2021.", "The trip is great."):
        assert rewording.apply_to(other) == other


@pytest.mark.parametrize(
    ("before", "after", "text", "read"),
    [
        (
            "User: I'm allergic to nuts.",
            "User is allergic to eggs.",
            "User: I have a cat. I'm allergic to nuts.",
            "User: I have a cat. User is allergic to eggs.",
        ),
        (
            "User: Ich wohne noch in der Altstadt.",
            "User wohnt noch in der Neustadt.",
            "[2026-03-01] Ich wohne noch in der Altstadt.",
            "[2026-03-01] User wohnt noch in der Neustadt.",
        ),
        (
            "User: My daughter is called Maya.",
            "User's daughter is called Mia.",
            "My daughter is called Maya. I love Maya.",
            "My daughter is called Mia. I love Mia.",
        ),
        (
            "Maya is a nurse in Oslo.",
            "Mia is a nurse in Oslo.",
            "Maya is a nurse, in Oslo.",
            "Mia is a nurse, in Oslo.",
        ),
        ("She is here. She has a red car.", "She is here.", "- She has a red car. She sails.", "She sails."),
        ("She is here.", "She is here. She sails.", "She is here.", "She is here. She sails."),
        (
            "Rex is 3.5 years old. It barks.",
            "Rex is 4.5 years old. It barks.",
            "Rex is 3.5 years old!",
            "Rex is 4.5 years old!",
        ),
        ("One of them sails. Two sing well.", "Two sing well. One of them sails.", "Two sing well.", "Two sing well."),
    ],
)
def test_removed_added_and_moved_sentences_are_handled(before: str, after: str, text: str, read: str) -> None:
    assert Rewording(before, after).apply_to(text) == read


def test_sentences_that_a_text_already_has_are_not_added_again() -> None:
    tea, coffee, others = "Ada likes tea.", "Ada likes coffee.", "She drinks it at eight. She buys beans in Turin."
    rewording = Rewording(tea, f"{coffee} {others}")
    assert rewording.apply_to(f"{tea} {others}") == f"{coffee} {others}"
    assert rewording.apply_to(tea) == f"{coffee} {others}"


@pytest.mark.slow
def test_row_9_facts_of_another_person_cannot_be_corrected(ada: UserProfile, bo: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    say(bo, "s1", "2025-01-10", "I live in Oslo.")
    fact = MemoryAtom.objects.get(user=ada).atom_id
    assert service.patch(f"facts/{fact}", user_id="bo", content="User lives in Bergen.").status_code == 404
    made = service.patch(f"facts/{fact}", user_id="ada", content="User lives in Bergen.").json()
    assert MemoryAtom.objects.get(user=bo).state == "active"
    assert service.get(f"corrections/{made['correction_id']}", user_id="bo").status_code == 404
    assert service.post(f"corrections/{made['correction_id']}/undo", user_id="bo").status_code == 404
    assert service.get("corrections", user_id="bo").json()["corrections"] == []


@pytest.mark.parametrize("name", ["Kirsten", "Amélie"])
def test_a_foreign_name_does_not_hide_a_sentence(name: str) -> None:
    """The language of a short sentence is a guess, and a longer sentence with the same words may get another guess."""
    rewording = Rewording(f"{name} lives in Oslo.", f"{name} lives in Bergen.")
    assert rewording.says_same(f"{name} lives in Oslo, by the harbor.")
    assert not rewording.says_same(f"{name} likes pasta a lot.")


@pytest.mark.parametrize(
    ("told", "other"),
    [("Marla", "Ottokar"), ("The guest k3f9a", "The guest r77b2"), ("Marla's son Ida", "Marla's son Eva")],
)
def test_the_same_words_about_another_person_are_not_changed(told: str, other: str) -> None:
    said = "lives in Oslo with the whole family and likes it there."
    rewording = Rewording(f"{told} {said}", f"{told} {said.replace('Oslo', 'Bergen')}")
    assert not rewording.says_same(f"{other} {said}")
    for same in (f"{told} lives in Oslo with the family, they like it.", f"Since May I too: {told} {said}"):
        assert rewording.says_same(same)


@pytest.mark.parametrize("after", ["", "User: I program in Rust.", "User: I program in C++ at night."])
def test_a_word_with_a_different_mark_is_not_changed(after: str) -> None:
    rewording = Rewording("User: I program in C.", after)
    for other in ("User: I program in C++.", "User: I program in C# daily."):
        assert not rewording.says_same(other) and rewording.apply_to(other) == other
        assert rewording.wrong_in(other) == [] and rewording.names_in(other) == []
    assert rewording.says_same("User: I program in C and C++.")
