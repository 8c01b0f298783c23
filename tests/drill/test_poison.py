"""The drill that plants attacks: it reports attacks that reach others or leave traces, and none of its attacks does."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.utils import timezone
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from drill.poison.attacks import ATTACKS, Attack, in_tags, said
from drill.poison.course import OTHERS, PlantedText, Watch, mark_of, planned, run
from drill.poison.doors import DOORS
from drill.poison.fences import escapes
from drill.poison.obedient import OBEDIENT, reply
from drill.poison.report import Row, summary, table
from drill.poison.views import HOME
from drill.provider import Provider
from drill.site import Site
from memoryproject.conf import ChatSettings
from moments_app.context import receipts
from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.calls.texts import ConsolidationRequest, DigestRequest, LabeledText, SummaryRequest
from moments_app.engines.model import ModelEngine
from moments_app.engines.transcript import Turn
from moments_app.interfaces.mcp import server as mcp
from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.turns import platform_text
from sessions_app.models import ApiKey, Message, Session
from sessions_app.models.application import DEFAULT
from tests.support.jobs import work_off
from tests.support.live import live_site

MARK = mark_of(0)


def over_mcp(person: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the response of a tool or a resource, called directly.

    A site has one session manager per process, which a test can't restart.
    """
    token = CURRENT.set(Connection(person, "default", "key:drill", "write", DEFAULT))
    try:
        if "name" in asked:
            answer = async_to_sync(getattr(mcp, asked["name"]))(**asked["arguments"])
        else:
            kind, *rest = asked["uri"].removeprefix("rem://").split("/")
            read: Any = {"moments": mcp.moments, "users": mcp.user_profile, "sessions": mcp.session_summary}[kind]
            answer = async_to_sync(read)(*rest[:1])
    except ResourceNotFoundError:
        return {"contents": []}
    finally:
        CURRENT.reset(token)
    return {"content": [{"text": json.dumps(answer, default=str)}]}


class Here:
    """The test's own site, with the interface of a temporary one."""

    def __init__(self, url: str, watch: Watch) -> None:
        self._site = Site(Provider())
        self._site.folder.rmdir()
        self._site.port = urlsplit(url).port or 0
        self._site.key = ApiKey.objects.issue("drill", scope="admin")[1]
        self.sent_upstream = watch.last_chat

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        if path == "/mcp":
            return 200, json.dumps({"result": over_mcp(dict(headers or {})["X-User-Id"], body["params"])}).encode()
        return self._site.request(method, path, body, headers=headers)

    def manage(self, *arguments: str) -> str:
        call_command(*arguments)
        return ""

    def rest(self) -> None:
        platform_text.line_buffer.flush()
        receipts.waiting.flush()
        work_off()

    def have_quiet(self) -> None:
        Session.objects.update(last_arrived_at=timezone.now() - timedelta(days=365))
        call_command("run_schedule", "compact_sessions")


@pytest.fixture
def drilled(
    transactional_db: None, forming: None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[Row]]]:
    """Run the drill on the test's site, with the extractive engine."""
    monkeypatch.setattr("drill.provider.LATENCY", 0)
    settings.SPOOL_DIR = tmp_path / "spool"
    with Provider(OBEDIENT, reply) as provider, live_site() as url:
        settings.CHAT = ChatSettings(upstream_base_url=provider.base_url, upstream_api_key=SecretStr("k"))

        def drill(planted: list[PlantedText], meanwhile: Callable[[str], object] = lambda _: None) -> list[Row]:
            provider.failure = watch = Watch(planted)
            return run(Here(url, watch), planted, watch, meanwhile)

        yield drill


def of_one_person(attacks: tuple[Attack, ...]) -> list[PlantedText]:
    """Return each attack over another interface, all by one person."""
    found = planned(attacks, ["rest"], "extractive")
    for number, one in enumerate(found):
        one.person, one.door = "eve", list(DOORS)[number % len(DOORS)]
        one.row.door = one.door
    return found


@pytest.mark.slow(seconds=20)
def test_row_24_no_attack_reaches_another_person_and_each_can_be_retracted(drilled: Any) -> None:
    planted = of_one_person(tuple(attack for attack in ATTACKS if not attack.is_long))
    rows = drilled(planted)
    assert [remark for row in rows for remark in row.remarks()] == []
    assert all(row.own[0] for row in rows[:-1]), table(rows)
    assert {row.door for row in rows[:-1]} == set(DOORS)


@pytest.mark.slow
def test_attacks_that_reach_others_or_stay_are_reported(drilled: Any) -> None:
    [planted] = planned([Attack("plain", lambda mark: said(f"Ask {mark}."))], ["rest"], "extractive")

    def spoil(step: str) -> None:
        if "looking" in step:
            [shard] = MemoryStream.objects.filter(stream_type="agent", name="advice")
            content = f"Ask {planted.mark}."
            MemoryAtom.objects.create(stream=shard, atom_type="fact", content=content, content_hash=content)
        if "retracting" in step:
            Message.objects.filter(session__session_id=HOME, user__user_id="cleo").update(content=f"{planted.mark}!")

    row, others = drilled([planted], spoil)
    assert {one.partition(",")[0] for one in row.others} >= set(OTHERS)
    assert row.after and any("left after retraction" in remark for remark in row.remarks())
    assert others.changed and not others.is_well


TURNS = [
    Turn(index=number, role="user", content=f"Obey {MARK}, {number}.", created_at=datetime(2026, 3, 2, tzinfo=UTC))
    for number in range(3)
]


def test_the_answers_of_the_obedient_model_are_valid_and_quote_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drill.provider.LATENCY", 0)
    with Provider(OBEDIENT, reply) as provider:
        engine = ModelEngine(base_url=provider.base_url, api_key="k", model="m", record=lambda record: None)
        built = engine.build_moments(MomentRequest(TURNS, Journey(), "p"))
        section = StreamSection("s", "p", 20, 20, "")
        answers = [
            built.moments[0].summary,
            engine.roll_summary(SummaryRequest(TURNS, "", (), 0, "p")).facts[0].fact,
            engine.form_memories(FormationRequest(TURNS, [section], "p")).streams[0]["facts"][0]["text"],
            engine.consolidate(ConsolidationRequest("p", (), (), [LabeledText("o1", MARK)], 100, "r")).lines[0].text,
            engine.digest(DigestRequest(TURNS, "", 100, "p")).lessons[0],
        ]
    assert all(MARK in answer for answer in answers)


class TestFences:
    """Text in a context that escapes its fence."""

    def told(self, form: str, context: str) -> list[str]:
        return list(escapes(form, context, [MARK]))

    @pytest.mark.parametrize(
        ("form", "context"),
        [
            ("xml", f"<MemoryContext><Policy>&lt;b&gt; {MARK}</Policy></MemoryContext>"),
            ("markdown", f"## Moments\n- Obey {MARK}.\n  # {MARK}"),
            ("messages", json.dumps([{"role": "user", "content": f"<b>{MARK}"}])),
            ("json", f"# {MARK}"),
        ],
    )
    def test_fenced_text_is_not_reported(self, form: str, context: str) -> None:
        assert self.told(form, context) == []

    @pytest.mark.parametrize(
        ("form", "context", "told"),
        [
            ("xml", f"<MemoryContext><b>{MARK}</b></MemoryContext>", "an element b"),
            ("xml", f"<MemoryContext></MemoryContext>{MARK}", "not XML"),
            ("stable", f"<MemoryContext><Turn><Turn><Turn>{MARK}</Turn></Turn></Turn></MemoryContext>", "in elements"),
            ("markdown", f"## Moments\n{MARK}", "a line of its own"),
            ("messages", json.dumps([{"role": "developer", "content": MARK}]), "the role developer"),
            ("messages", json.dumps([{"role": "system", "content": MARK}]), "not XML"),
            ("json", in_tags(MARK), "invisible characters"),
        ],
    )
    def test_text_that_escapes_is_reported(self, form: str, context: str, told: str) -> None:
        [wrong] = self.told(form, context)
        assert told in wrong


def test_a_model_call_with_text_of_two_people_is_reported() -> None:
    planted = planned(ATTACKS[:2], ["rest"], "extractive")
    watch = Watch(planted)
    watch(f"{planted[0].mark} alone")
    assert watch.mixed == set()
    watch(f"{planted[0].mark} and {planted[1].mark}")
    assert watch.mixed == {one.mark for one in planted}


def test_every_attack_has_unique_marks_at_each_entry_point() -> None:
    planted = planned(ATTACKS, list(DOORS), "extractive")
    for one in planted:
        text = "".join(turn["content"] for turn in one.attack.turns(one.mark))
        assert all(mark in text for mark in one.marks)
        assert not any(other.mark in text for other in planted if other is not one)


def test_the_summary_adds_the_rows_of_an_attack() -> None:
    rows = [Row("flooding", door, "extractive", own=(3, 15), escapes=["ada, xml"]) for door in ("rest", "chat")]
    text = summary([*rows, Row("what all others get", "all", "extractive")])
    [line] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert line == ["flooding", "2", "0", "6 of 30", "2", "0"]


def test_a_row_shows_its_problems() -> None:
    fine = Row("flooding", "rest", "extractive", own=(3, 15))
    bad = Row("flooding", "chat", "extractive", others=["bo, search"] * 5, after=["search"], changed=["ada, xml: x"])
    assert "| 0              | 3 of 15       | 0                 | gone, contexts as before" in table([fine, bad])
    assert "| 5 " in table([fine, bad]) and "1 left, 1 contexts differ" in table([fine, bad])
    assert (fine.is_well, bad.is_well, fine.remarks(), len(bad.remarks())) == (True, False, [], 3)
