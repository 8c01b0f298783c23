"""Text that the platform served and received back is not remembered again. People's own words are."""

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.jobs.runner import run_job
from moments_app.models import Job, Moment, OwnText, ServedLine, Summary, TurnEmbedding
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from moments_app.reports.housekeeping import HousekeepingResult, housekeeping
from moments_app.sessions.digest import DigestSession
from moments_app.turns import platform_text
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.database import deferred
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form
from tests.support.transcript import talk
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

PROFILE = "Ada restores kilns in Turin and dreams of a harpsichord."
SAID = "My harpsichord came from Bologna on Monday."
LONGER = "The harpsichord has two manuals.\nIts jacks are made of pear wood, all of them."
OWN_WORDS = "Tell me about harpsichord strings, please."
FORMATS = ("xml", "markdown", "json", "messages")


@pytest.fixture
def remembered(ada: UserProfile) -> None:
    """A profile, and two turns, one of them with several lines."""
    UserProfile.objects.filter(pk=ada.pk).update(summary=PROFILE)
    append(ada, "before", [NewMessage("user", SAID), NewMessage("user", LONGER)])


def context(api: Api, form: str, query: str = "") -> str:
    """Return a context as a client gets it, as one text."""
    append(UserProfile.objects.get(), "now", [NewMessage("user", "Hello.")])
    found = api.get("memory/context", user_id="ada", session_id="now", query=query, format=form).json()
    if form == "json":
        return json.dumps(found["layers"])
    told = found["context"]
    return (
        told
        if isinstance(told, str)
        else "\n".join(message["content"] for message in told if message["role"] == "system")
    )


def shown(server: OpenAIServer) -> str:
    """Return the turns of the last engine request."""
    return json.dumps(behave.turns_of([asked for asked in server.requests if "messages" in asked][-1]))


def found(user: UserProfile, query: str = "harpsichord") -> list[str]:
    return [result.content for result in recall(user, "", RecallRequest(query, ("turn",)), most=50)]


@pytest.mark.slow
@pytest.mark.parametrize(("form_of", "role"), list(zip(FORMATS, ["user", "assistant", "tool", "system"], strict=True)))
@pytest.mark.usefixtures("remembered")
def test_row_23_a_context_sent_back_is_not_remembered_in_any_format(
    ada: UserProfile, service: Api, model_server: OpenAIServer, embeddings_server: OpenAIServer, form_of: str, role: str
) -> None:
    text = context(service, form_of)
    assert "harpsichord" in text
    session = append(ada, "after", [NewMessage(role, text, tool_name="my_memory" if role == "tool" else "")]).session
    assert text not in found(ada)
    append(ada, "after", [NewMessage("user", "Hi."), NewMessage("assistant", "Hello.")])
    form(session)
    assert "Hi." in shown(model_server) and "harpsichord" not in shown(model_server)
    run_job(Job.objects.request(DigestSession.name, session, requested_by="test", force=True).job_id)
    assert "Hi." in shown(model_server) and "harpsichord" not in shown(model_server)
    work_off()
    assert not TurnEmbedding.objects.filter(source__content=text).exists()
    assert TurnEmbedding.objects.filter(source__content="Hi.").exists()


@pytest.mark.usefixtures("remembered")
def test_row_23_moments_and_summaries_contain_nothing_of_contexts_in_the_conversation(
    ada: UserProfile, service: Api, rolling: None
) -> None:
    text = context(service, "markdown")
    session = append(ada, "after", [NewMessage("assistant", text)] * 6).session
    assert build(session, lag=0).status == Job.Status.COMPLETED
    work_off()
    made = [*Moment.objects.filter(source_session=session), *Summary.objects.filter(session=session)]
    assert made and "harpsichord" not in str([vars(one) for one in made])
    append(ada, "after", [NewMessage("user", "Hi."), NewMessage("assistant", f"{text}\n\nThe lute is back.")])
    work_off()
    latest = Summary.objects.latest_completed(session)
    assert latest and "lute" in latest.text


@pytest.mark.slow
@pytest.mark.parametrize("form_of", FORMATS)
@pytest.mark.usefixtures("remembered")
def test_row_23_only_the_persons_own_words_of_a_turn_with_a_context_are_remembered(
    ada: UserProfile, service: Api, model_server: OpenAIServer, embeddings_server: OpenAIServer, form_of: str
) -> None:
    text = context(service, form_of, query=OWN_WORDS)
    whole = json.dumps({"a": json.loads(text), "b": OWN_WORDS}) if form_of == "json" else f"{text}\n\n{OWN_WORDS}"
    session = append(ada, "after", [NewMessage("user", whole), NewMessage("assistant", "Gladly.")]).session
    said = found(ada, "strings")[0]
    assert set(said.removeprefix("- ").splitlines()) - {""} == {OWN_WORDS}
    form(session)
    assert OWN_WORDS in shown(model_server)
    assert "Bologna" not in shown(model_server) and "Turin" not in shown(model_server)
    work_off()
    [turn] = drop_platform_text([Message.objects.get(content=whole)])
    assert turn.content == said
    assert TurnEmbedding.objects.filter(source=turn).exists()
    assert any(said in asked["input"] for asked in embeddings_server.requests)


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(
    "said",
    [
        "What does <MemoryContext> mean in my harpsichord app?",
        "<MemoryContext> harpsichord </MemoryContext>",
        "My log says harpsichord:\n[TOOL RESULT: session_partition]\nand then it stops.",
        f"You told me this:\n{SAID}\nIs the harpsichord paid for?",
        SAID,
        LONGER,
    ],
)
def test_row_23_a_persons_words_about_memory_or_repeated_words_are_remembered(
    ada: UserProfile, service: Api, model_server: OpenAIServer, said: str
) -> None:
    context(service, "markdown")
    session = append(ada, "after", [NewMessage("user", said), NewMessage("assistant", "Noted.")]).session
    assert not OwnText.objects.exists()
    assert said in found(ada)
    form(session)
    assert json.dumps(said)[1:-1] in shown(model_server)


@pytest.mark.usefixtures("remembered")
def test_row_23_text_that_a_person_wrote_before_it_was_served_stays_theirs(ada: UserProfile, service: Api) -> None:
    query = "Is pear wood good for the jacks?\nOr would holly be better for all of them?"
    service.get("memory/context", user_id="ada", session_id="before", query=query, format="markdown")
    platform_text.line_buffer.flush()
    append(ada, "before", [NewMessage("user", query)])
    assert not OwnText.objects.exists()
    assert len(drop_platform_text(list(Message.objects.turns()))) == 3


def test_row_23_a_partition_event_replayed_as_a_turn_is_not_remembered(ada: UserProfile) -> None:
    build(talk(ada, 60))
    event = Message.objects.partitions().get()
    append(ada, "s1", [NewMessage("assistant", event.content), NewMessage("user", f"{event.content}\nGo on then.")])
    newest = Message.objects.turns().order_by("-sequence")[:2]
    assert [turn.content for turn in drop_platform_text(list(newest))] == ["Go on then."]


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("path", ["search", "tool"])
def test_row_23_search_results_are_not_remembered_again(ada: UserProfile, service: Api, path: str) -> None:
    answer = service.post("memory/search", user_id="ada", query="harpsichord").json()
    assert {result["content"] for result in answer["results"]} >= {SAID, LONGER}
    name = "search_long_term_memory" if path == "tool" else "remember"
    append(ada, "after", [NewMessage("tool", json.dumps(answer), tool_name=name)])
    assert sorted(found(ada)) == sorted([SAID, LONGER])
    assert drop_platform_text([Message.objects.latest("id")]) == []


@pytest.mark.usefixtures("remembered")
def test_lines_are_stored_as_hashes_once_per_person_and_found_by_other_processes(
    ada: UserProfile, bo: UserProfile, service: Api
) -> None:
    text = context_of(service)
    platform_text.line_buffer.flush()
    lines = ServedLine.objects.count()
    assert lines and not platform_text.unsaved_hashes(ada.pk)
    context_of(service)
    assert not platform_text.line_buffer.pending()  # because this process has already written them
    platform_text.written_lines.forget()
    context_of(service)
    platform_text.line_buffer.flush()
    assert ServedLine.objects.count() == lines
    append(ada, "after", [NewMessage("user", text)])
    append(bo, "after", [NewMessage("user", text)])
    assert [own.user for own in OwnText.objects.all()] == [ada]


def context_of(service: Api) -> str:
    found = service.get("memory/context", user_id="ada", session_id="before", format="markdown").json()
    return str(found["context"])


@pytest.mark.usefixtures("remembered")
def test_a_quoted_text_counts_fully_once_it_is_memory(ada: UserProfile) -> None:
    platform_text.line_buffer.add(platform_text.ServedTexts(ada.pk, [LONGER], [LONGER]))
    platform_text.line_buffer.flush()
    append(ada, "one", [NewMessage("user", LONGER)])
    assert not OwnText.objects.exists()
    platform_text.store_lines(ada.pk, [LONGER])
    append(ada, "two", [NewMessage("user", LONGER)])
    assert OwnText.objects.get().places is None


def test_a_process_caches_recently_written_lines_of_a_few_people(
    ada: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted, said = (platform_text.ServedTexts(ada.pk, [LONGER], quotes) for quotes in ([LONGER], []))
    known = platform_text.WrittenLines()
    known.add({ada.pk: quoted.hashes})
    assert known.has_all(quoted) and not known.has_all(said)
    known.add({ada.pk: said.hashes})
    assert known.has_all(quoted) and known.has_all(said)
    assert not known.has_all(platform_text.ServedTexts(ada.pk, [LONGER, SAID], [SAID]))
    known.add({ada.pk + other: said.hashes for other in range(1, platform_text.MAX_PEOPLE + 1)})
    assert not known.has_all(said)
    known.add({ada.pk: dict.fromkeys(range(platform_text.MAX_LINES), False)})
    known.add({ada.pk: said.hashes})
    assert known.has_all(said) and known._people.get(ada.pk) == said.hashes
    monkeypatch.setattr(platform_text, "TRUSTED_SECONDS", 0)
    known = platform_text.WrittenLines()
    known.add({ada.pk: said.hashes})
    assert not known.has_all(said)


@pytest.mark.usefixtures("remembered")
def test_an_append_takes_one_more_query_only_for_texts_of_several_lines(ada: UserProfile) -> None:
    def statements(text: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            append(ada, "now", [NewMessage("user", text)] * 5)
        return len(captured)

    statements(SAID)
    assert statements(LONGER) == statements(SAID) + 1


@pytest.mark.usefixtures("remembered")
def test_lines_not_served_for_a_year_are_deleted(ada: UserProfile, service: Api) -> None:
    context_of(service)
    platform_text.line_buffer.flush()
    lines = ServedLine.objects.count()
    ServedLine.objects.update(served_on=timezone.localdate() - timedelta(days=390))
    platform_text.written_lines.forget()
    assert housekeeping() == HousekeepingResult()
    context_of(service)
    platform_text.line_buffer.flush()
    assert set(ServedLine.objects.values_list("served_on", flat=True)) == {timezone.localdate()}
    ServedLine.objects.update(served_on=timezone.localdate() - timedelta(days=401))
    assert housekeeping() == HousekeepingResult(served_lines=lines)


@pytest.mark.usefixtures("remembered")
def test_a_restored_archived_turn_is_still_recognized(ada: UserProfile, service: Api) -> None:
    text = context_of(service)
    append(ada, "after", [NewMessage("user", text)])
    [row] = Message.objects.filter(content=text).values()
    Message.objects.filter(content=text).delete()
    Message.objects.create(**row | {"id": row["id"] + 1_000})
    assert drop_platform_text(list(Message.objects.filter(content=text))) == []


@pytest.mark.usefixtures("remembered")
def test_lines_are_written_soon_after_the_response(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    platform_text.line_buffer.stop()  # its thread started with another interval
    monkeypatch.setattr(deferred, "SHORT_INTERVAL", 0.02)
    context_of(service)
    wait_until(ServedLine.objects.exists)
    platform_text.line_buffer.stop()
    assert not platform_text.line_buffer.pending()
