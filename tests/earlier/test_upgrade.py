"""The newest code starts on data of earlier releases and loses nothing. `write.py` wrote the data."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from moments_app.models import MemoryAtom
from moments_app.streams.profile import rebuild_profiles
from sessions_app.models import ApiKey, DailyUsage, Message
from tests.support.api import Api
from tests.support.earlier import PROBES, STATES, fill, sql_of, without_indexes_of_models
from tests.support.jobs import work_off
from tests.support.openai_server import OpenAIServer
from tests.support.other_database import empty_database
from tests.support.schema import differences, schema

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.django_db(transaction=True)]

WITH_VECTORS = STATES[1:]
ADAS = {"kinds": ["turn", "moment"], "user_id": "ada"}


# Usage of a person and of a key, as stored by a release with limits for people.
USAGE = """
INSERT INTO sessions_app_dailyusage (user_id, key_id, day, requests, stored_bytes, model_calls, usd)
SELECT id, NULL::bigint, '2026-03-01'::date, 5, 10, 0, 0 FROM sessions_app_userprofile
UNION ALL SELECT NULL, id, '2026-03-01', 7, 10, 0, 0 FROM sessions_app_apikey
"""
# A profile as lines, as earlier releases stored it: one line by an engine, one that ended, and one by an operator.
LINES = """
INSERT INTO moments_app_profileline
    (line_id, heading, text, joint, position, source_message_ids, engine, actor, is_pinned, created_at, ended_at,
     ended_by, end_reason, user_id)
SELECT gen_random_uuid(), heading, text, E'\\n', place, sources, engine, actor, false, '2026-03-02', ended_at, '',
       reason, (SELECT id FROM sessions_app_userprofile WHERE user_id = 'ada')
FROM (VALUES
    ('', 'Ada keeps bees.', 0, '{}'::bigint[], '', 'operator:eve', NULL::timestamptz, ''),
    ('Work:', '- Ada mends nets at night. (2026-03-01)', 1, '{1}', 'model', 'job:1', NULL, ''),
    ('Work:', '- Ada sells fish at noon.', 1, '{2}', 'model', 'job:1', '2026-03-03', 'ended')
) AS line (heading, text, place, sources, engine, actor, ended_at, reason);
UPDATE sessions_app_userprofile SET summary = E'Ada keeps bees.\\nWork:\\n- Ada mends nets at night. (2026-03-01)'
WHERE user_id = 'ada';
"""
# A stream with the text of two consolidations and a line of an operator. A retraction keeps parts of it.
TEXTS = """
INSERT INTO moments_app_streamversion (id, stream_id, content_before, content_after, lines, engine, created_at)
SELECT number, stream.id, '', text, lines::jsonb, 'model', day::timestamptz
FROM moments_app_memorystream stream, (VALUES
    (901, 'Ada owns one anvil.', '[[901]]', '2026-03-04'),
    (902, E'Ada owns one anvil.\\nAda owns two tools.', '[[901], [902, 903]]', '2026-03-05')
) AS version (number, text, lines, day)
WHERE stream_type = 'user' AND stream.user_id = (SELECT id FROM sessions_app_userprofile WHERE user_id = 'ada');
INSERT INTO moments_app_memoryatom (id, stream_id, user_id, atom_id, atom_type, content, content_hash, state,
    absorbed_in_id, shown_in_id, formed_at, created_at, access_count, is_pinned, source_message_ids, engine)
SELECT number, stream_id, (SELECT id FROM sessions_app_userprofile WHERE user_id = 'ada'), gen_random_uuid(),
    'observation', text, text, state, absorbed, shown, '2026-03-03', '2026-03-03', 0, false, '{}', 'model'
FROM moments_app_streamversion version, (VALUES
    (901, 'Ada owns an anvil.', 'absorbed', 901, 901), (902, 'Ada owns a bellows.', 'absorbed', 902, 902),
    (903, 'Ada owns a chisel.', 'absorbed', 902, 901), (904, 'Ada owns a dowel.', 'active', NULL, 902)
) AS atom (number, text, state, absorbed, shown)
WHERE version.id = 901;
UPDATE moments_app_memorystream stream
SET consolidated_content = E'Ada owns one anvil.\\nNever call Ada.\\n\\nAda owns two tools.'
FROM moments_app_streamversion version WHERE version.id = 902 AND stream.id = version.stream_id;
"""
# Tasks and goals with a link, as earlier releases stored them, and a goal with a link that a retraction keeps.
ENTITIES = """
INSERT INTO moments_app_entity (id, entity_id, user_id, kind, title, body, status, due_at, source_session_id,
    written_by, external_id, created_at, updated_at)
SELECT number, ('00000000-0000-0000-0000-000000000' || number)::uuid, session.user_id, kind, entity.title, '',
    entity.status, '2026-04-01', session.id, 'key:abc', number, '2026-03-02', '2026-03-03'
FROM sessions_app_session session, (VALUES
    (801, 'task', E'Buy\nrope.', 'open'), (802, 'goal', 'Sail.', 'done'), (803, 'task', 'Buy a flag.', 'dropped'),
    (805, 'task', 'Sell the boat.', 'open')
) AS entity (number, kind, title, status) WHERE session_id = 'ada-0';
INSERT INTO moments_app_entitylink (user_id, from_entity_id, to_entity_id, relation)
SELECT user_id, 801, 802, 'blocks' FROM moments_app_entity WHERE id = 801;
INSERT INTO moments_app_retraction (id, retraction_id, user_id, item_ids, entity_ids, reason, requested_by, result,
    waiting, created_at)
SELECT 801, gen_random_uuid(), user_id, '{}', '{00000000-0000-0000-0000-000000000804}', 'planted', 'key:abc',
    '{"turns": 0, "items": 1, "withdrawn": {}}', '{}', '2026-03-04'
FROM moments_app_entity WHERE id = 801;
INSERT INTO moments_app_retracteditem (retraction_id, user_id, model, object_pk, is_rewritten, data)
SELECT 801, user_id, 'moments_app.' || model, pk, false, data || jsonb_build_object('user', user_id)
FROM moments_app_entity, (VALUES
    ('entity', 804, '{"entity_id": "00000000-0000-0000-0000-000000000804", "kind": "goal", "title": "Own a boat.",
      "body": "A red one.", "status": "open", "due_at": null, "source_session": null, "written_by": "key:abc",
      "external_id": null, "created_at": "2026-03-02T08:00:00+00:00", "updated_at": "2026-03-03T08:00:00+00:00"
      }'::jsonb),
    ('entitylink', 804, '{"from_entity": 801, "to_entity": 804, "relation": "part_of"}')
) AS item (model, pk, data) WHERE id = 801;
"""


@pytest.fixture(params=STATES)
def upgraded(
    request: pytest.FixtureRequest, transactional_db: None, embeddings_server: OpenAIServer
) -> Iterator[tuple[str, Api]]:
    """The name of a state, and a client of the newest code with a key from that state."""
    newest = schema()
    with empty_database():
        fill(request.param, PROBES, USAGE, LINES, TEXTS, ENTITIES)
        # The earlier release continues to run between two migrations, and a user deletes a task.
        call_command("migrate", "moments_app", "0138", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM moments_app_entity WHERE id = 805")
        call_command("migrate", verbosity=0)
        assert without_indexes_of_models(differences(schema(), newest)) == set()
        yield request.param, Api(sql_of(request.param).split(maxsplit=2)[1])


def test_row_33_data_of_every_earlier_state_can_be_searched_and_extended(upgraded: tuple[str, Api]) -> None:
    state, api = upgraded
    before = Message.objects.filter(user__user_id="ada").count()
    assert before >= 48
    counted = DailyUsage.objects.filter(day="2026-03-01").values_list("key", "requests")
    assert sorted(counted) == [(pk, 7) for pk in ApiKey.objects.order_by("pk").values_list("pk", flat=True)]

    assert count("moments_app_probe") == count("moments_app_proberesult") == count("moments_app_prompttrial") == 1
    _assert_profile_is_of_statements(api)
    _assert_texts_are_of_statements(api)
    _assert_entities_are_statements(api)
    found = search(api, "When does the ferry leave?")
    assert "Thursdays at seven" in found[0]["content"]
    if state in WITH_VECTORS:
        assert any(result["ranks"]["semantic"] for result in found), found

    said = {"role": "user", "content": "Oda's bees made a zephyr-flavored honey.", "external_id": "new"}
    appended = api.post("sessions/ada-0/messages", user_id="ada", messages=[said])
    assert appended.status_code == 201, appended.json()
    call_command("embed", stdout=StringIO())
    call_command("run_schedule", "index_words", stdout=StringIO())
    work_off()
    new = search(api, "zephyr honey")[0]
    assert "zephyr" in new["content"] and new["ranks"]["semantic"]
    assert "Thursdays at seven" in search(api, "When does the ferry leave?")[0]["content"]

    context = api.get("memory/context", user_id="ada", session_id="ada-0", query="Which color are the railings?")
    assert context.status_code == 200
    assert "Saffron yellow" in context.json()["context"]
    assert Message.objects.filter(user__user_id="ada").count() >= before + 1
    assert api.client.get("/readyz").json()["checks"]["migrations"] == "ok"
    coverage = api.get("coverage", user_id="ada").json()
    assert (coverage["missing"], coverage["miscounted"]) == (0, 0), coverage


def count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def search(api: Api, query: str) -> list[dict[str, Any]]:
    answer = api.post("memory/search", query=query, **ADAS)
    assert answer.status_code == 200, answer.content
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def _assert_profile_is_of_statements(api: Api) -> None:
    profile = api.get("users/ada", user_id="ada").json()
    assert profile["summary"].startswith("Ada keeps bees.\n") and "Ada mends nets at night." in profile["summary"]
    assert "fish" not in profile["summary"] and {"bees", "railings"} <= set(profile["preferred_topics"])
    mends, sells = (
        MemoryAtom.objects.get(content=f"Ada {does}.") for does in ("mends nets at night", "sells fish at noon")
    )
    assert (mends.state, mends.source_message_ids) == ("active", [1])
    assert (sells.state, sells.source_message_ids) == ("ended", [2])
    assert MemoryAtom.objects.get(value="bees", user=mends.user).source_message_ids
    rebuild_profiles([mends.user_id])  # type: ignore[list-item]
    assert api.get("users/ada", user_id="ada").json() == profile


def _assert_texts_are_of_statements(api: Api) -> None:
    parts = {pk: MemoryAtom.objects.get(pk=pk) for pk in range(901, 905)}
    stream = parts[901].stream
    lines = [(line.content, line.engine, line.carries) for line in stream.atoms.lines()]
    assert lines == [
        ("Ada owns one anvil.", "model", [901]),
        ("Never call Ada.", "", []),
        ("Ada owns two tools.", "model", [902, 903]),
    ]
    assert [f"{part.consolidated_at:%d}" for part in parts.values()] == ["04", "05", "04", "05"]
    assert list(stream.atoms.fresh().filter(pk__in=parts)) == []
    path = f"streams/{stream.stream_id}"
    undone = api.post(f"{path}/undo", user_id="ada").json()
    assert undone["consolidated_content"] == "Ada owns one anvil.\nNever call Ada."
    assert set(stream.atoms.waiting().filter(pk__in=parts).values_list("pk", flat=True)) == {902, 903, 904}
    undone = api.post(f"{path}/undo", user_id="ada").json()
    assert undone["consolidated_content"] == "Never call Ada."
    assert stream.atoms.waiting().filter(pk__in=parts).count() == 4


def _assert_entities_are_statements(api: Api) -> None:
    listed = {one["title"]: one for one in api.get("entities", user_id="ada").json()["entities"]}
    assert listed["Paint the lighthouse"]["body"] == "All railings."
    assert "Sell the boat." not in listed
    rope, sail, flag = (listed[title] for title in ("Buy rope.", "Sail.", "Buy a flag."))
    expected = {
        "entity_id": "00000000-0000-0000-0000-000000000801",
        "external_id": "801",
        "due_at": "2026-04-01T00:00:00Z",
        "session_id": "ada-0",
        "written_by": "key:abc",
        "created_at": "2026-03-02T00:00:00Z",
        "updated_at": "2026-03-03T00:00:00Z",
    }
    assert rope | expected == rope
    assert [one["status"] for one in (rope, sail, flag)] == ["open", "done", "dropped"]
    assert {one["updated_at"] for one in (sail, flag)} == {expected["updated_at"]}
    links = f"entities/{rope['entity_id']}/links"
    ends = [(one["relation"], one["to_entity_id"]) for one in api.get(links, user_id="ada").json()["links"]]
    assert ends == [("blocks", sail["entity_id"])]
    [made] = api.get("retractions", user_id="ada").json()["retractions"]
    assert api.post(f"retractions/{made['retraction_id']}/undo", user_id="ada").status_code == 200
    boat = api.get(f"entities/{made['entity_ids'][0]}", user_id="ada").json()
    assert (boat["title"], boat["body"], boat["status"]) == ("Own a boat.", "A red one.", "open")
    assert [one["to_entity_id"] for one in api.get(links, user_id="ada").json()["links"]] == [
        sail["entity_id"],
        boat["entity_id"],
    ]
