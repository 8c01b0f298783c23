"""`as_of`: three moves, two jobs and a child's name, on five dates, over every interface."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext

from moments_app.models import MemoryAtom
from moments_app.models.atom import true_at
from sessions_app.models import Message, UserProfile
from tests.support.api import Api
from tests.support.lives import BAKER, BERGEN, DATES, MAYA, MIA, MOVES, OSLO, STAVANGER, TEACHER, say, told_a_life
from tests.support.openai_server import OpenAIServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def listed(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [fact["content"] for fact in answer.json()["facts"]][::-1]


@pytest.mark.slow
def test_rest_returns_the_facts_of_five_dates(life: UserProfile, service: Api) -> None:
    for day, expected in DATES.items():
        assert listed(service.get("facts", user_id="ada", as_of=day)) == expected, day


@pytest.mark.slow
def test_a_model_that_names_no_ends_gives_the_same_timeline(
    ada: UserProfile, service: Api, model_server: OpenAIServer
) -> None:
    told_a_life(ada, model_server)
    assert {fact.engine for fact in MemoryAtom.objects.all()} == {MemoryAtom.objects.all()[0].engine}
    assert MemoryAtom.objects.all()[0].engine.startswith("openai:")
    for day, expected in DATES.items():
        assert listed(service.get("facts", user_id="ada", as_of=day)) == expected, day


@pytest.mark.slow
def test_current_and_ended_facts_are_listed(life: UserProfile, service: Api) -> None:
    assert listed(service.get("facts", user_id="ada")) == [STAVANGER, TEACHER, MIA]
    assert listed(service.get("facts", user_id="ada", state="ended")) == [OSLO, MAYA, BAKER, BERGEN]
    [now] = service.get("facts", user_id="ada", attribute="work").json()["facts"]
    assert (now["subject"], now["value"], now["valid_from"][:10]) == ("User", "teacher", "2025-10-01")
    [before] = service.get("facts", user_id="ada", attribute="work", state="ended").json()["facts"]
    assert (before["replaced_by"], before["valid_until"][:10]) == (now["fact_id"], "2025-10-01")
    homes = service.get("facts", user_id="ada", attribute="home", state="all").json()["facts"]
    spans = [(fact["value"], fact["valid_from"] or "", fact["valid_until"] or "") for fact in homes]
    assert [(value, start[:10], end[:10]) for value, start, end in spans] == [
        ("Stavanger", "2025-09-15", ""),
        ("Bergen", "2025-03-03", "2025-09-15"),
        ("Oslo", "", "2025-03-03"),
    ]
    [wrong] = service.get("facts", user_id="ada", attribute="daughter", state="ended").json()["facts"]
    assert wrong["is_wrong"] and not before["is_wrong"]


@pytest.mark.slow
def test_the_next_page_continues_after_the_last_row(life: UserProfile, service: Api) -> None:
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = service.get("facts", user_id="ada", state="all", limit=3, **after).json()
        seen += [fact["content"] for fact in page["facts"]]
        if not page["has_more"]:
            break
        after = {"after": page["facts"][-1]["fact_id"]}
    assert seen == [MIA, TEACHER, STAVANGER, BERGEN, BAKER, MAYA, OSLO]


@pytest.mark.slow
def test_row_9_facts_of_another_person_look_unknown(life: UserProfile, bo: UserProfile, service: Api) -> None:
    fact = MemoryAtom.objects.filter(user=life)[0].atom_id
    assert listed(service.get("facts", user_id="bo", state="all")) == []
    for path in (f"facts/{fact}", f"facts/{fact}/sources"):
        assert service.get(path, user_id="ada").status_code == 200
        assert service.get(path, user_id="bo").status_code == 404
    assert service.get("facts", user_id="bo", after=str(fact)).status_code == 404


@pytest.mark.slow
def test_sources_are_quoted_turns(life: UserProfile, service: Api) -> None:
    fact = MemoryAtom.objects.get(content=OSLO)
    [source] = service.get(f"facts/{fact.atom_id}/sources", user_id="ada").json()["sources"]
    assert (source["content"], source["session_id"], source["sequence"]) == ("I live in Oslo.", "on-2025-01-10", 0)


def found(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [result["content"] for result in answer.json()["results"] if result["kind"] == "fact"]


@pytest.mark.slow
def test_a_search_as_of_a_time_finds_what_was_valid_then(life: UserProfile, service: Api) -> None:
    asked = {"user_id": "ada", "query": "Where does the user live, Oslo, Bergen or Stavanger?", "kinds": ["fact"]}
    for time, lived_in in (("2025-02-15", OSLO), ("2025-06-01T12:00:00+02:00", BERGEN), ("2025-12-01", STAVANGER)):
        then = found(service.post("memory/search", **asked, as_of=time))
        assert then[0] == lived_in and {OSLO, BERGEN, STAVANGER}.intersection(then) == {lived_in}
    now = {
        result["content"]: result["valid_until"] for result in service.post("memory/search", **asked).json()["results"]
    }
    assert next(iter(now)) == STAVANGER and now[STAVANGER] is None
    assert (now[OSLO][:10], now[BERGEN][:10]) == ("2025-03-03", "2025-09-15")
    assert found(service.post("memory/search", user_id="ada", query="daughter", kinds=["fact"])) == [MIA]
    turns = service.post("memory/search", user_id="ada", query="moved to Stavanger", as_of="2025-06-01").json()
    assert all("Stavanger" not in result["content"] for result in turns["results"])


def context(service: Api, query: str, **of: Any) -> str:
    answer = service.get("memory/context", user_id="ada", session_id="on-2025-11-05", query=query, **of)
    assert answer.status_code == 200, answer.content
    return str(answer.json()["context"])


@pytest.mark.slow
def test_a_context_shows_current_facts_and_past_ones_on_request(life: UserProfile, service: Api) -> None:
    layers = "user,retrieved"
    now = context(service, "Where do I live?", layers=layers)
    assert STAVANGER in now and BERGEN not in now and OSLO not in now
    before = context(service, "Where did I live before, Oslo or Bergen?", layers=layers)
    assert f"{OSLO} (held until 2025-03-03)" in before
    assert f"{BERGEN} (held from 2025-03-03 until 2025-09-15)" in before
    then = context(service, "Where do I live?", as_of="2025-06-01")
    assert BERGEN in then and BAKER in then and MAYA in then
    assert not any(later in then for later in (STAVANGER, TEACHER, MIA, "Stavanger", "teacher", "Mia"))


def test_a_time_without_an_offset_and_an_invalid_date_are_rejected(ada: UserProfile, service: Api) -> None:
    for wrong in ("2025-06-01T12:00:00", "2025-13-01", "yesterday", "1812-01-01"):
        answer = service.get("facts", user_id="ada", as_of=wrong)
        assert answer.status_code == 400, wrong
        told = "the end of 2100" if "1812" in wrong else "a date, such as 2026-03-02, or a time with a UTC offset"
        assert told in answer.json()["errors"][0]["detail"]


@pytest.mark.slow
def test_a_list_takes_a_constant_number_of_queries(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    service.get("facts", user_id="ada")
    taken = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as statements:
            service.get("facts", user_id="ada", as_of="2025-12-01")
        taken.append(len(statements))
        told_a_life(ada)
    assert taken[0] == taken[1] <= 5


@pytest.mark.slow
def test_later_facts_do_not_displace_what_was_valid_at_the_time(life: UserProfile, service: Api) -> None:
    multiply(MemoryAtom.objects.get(content=STAVANGER), 1_200)
    multiply(Message.objects.get(content=MOVES[-1][1]), 1_200)
    for kind, expected in (("fact", BERGEN), ("turn", MOVES[1][1])):
        asked = {"user_id": "ada", "query": "moved to Bergen, Stavanger, today", "kinds": [kind], "match_count": 3}
        [first, *_] = service.post("memory/search", **asked, as_of="2025-06-01").json()["results"]
        assert first["content"] == expected


def multiply(row: Model, times: int) -> None:
    """Add copies of a row with its words, each that many minutes later."""
    unique = {"atom_id": "gen_random_uuid()", "message_id": "gen_random_uuid()", "content_hash": "md5(n::text)"}
    unique |= {"sequence": "sequence + 99 + n", "external_id": "NULL"}
    unique |= {time: f"{time} + n * interval '1 minute'" for time in ("formed_at", "created_at")}
    names = [str(field.column) for field in row._meta.concrete_fields if not field.primary_key]
    values = ", ".join(unique.get(name, name) for name in names)
    table = row._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}, generate_series(1, %s) n "
            "WHERE id = %s",
            [times, row.pk],
        )


def test_the_searches_of_former_times_have_the_condition_of_the_model() -> None:
    until = "current_setting('memory.until')::timestamptz"
    functions = {"recall_moments_app_memoryatom_then": "", "nearest_moments_app_factembedding_then": "fact."}
    with connection.cursor() as cursor:
        for name, columns in functions.items():
            cursor.execute("SELECT pg_get_functiondef(%s::regproc)", [name])
            assert true_at(columns, until) in cursor.fetchone()[0], name
