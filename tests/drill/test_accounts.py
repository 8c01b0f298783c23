"""The drill's accounts: lost and duplicated data is found and reported, and makes the drill fail."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from drill.__main__ import Command
from drill.acts import Correct, Retract, item_texts
from drill.course import Course
from drill.database import temporary_database
from drill.faults import PARTS
from drill.ledger import Ledger, compare, marks_in, new_mark
from drill.provider import Provider
from drill.recovery import settle, work_lost_or_doubled
from drill.report import Row, added, not_tried, quantiles, summary, table
from drill.site import Site, SiteNotReady, environment, wait_for
from moments_app.models import Correction, EngineCall, Job, MemoryAtom, MemoryStream
from moments_app.provenance.correct import correct, replacement_request
from moments_app.provenance.retract_items import ItemSelection, retract_items
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.processes import database_url
from tests.support.streams import note, rewrite

ONE, TWO, THREE = (("user", new_mark()) for _ in range(3))


class TestLedger:
    def test_an_acknowledged_turn_that_is_not_stored_is_lost(self) -> None:
        assert compare({ONE, TWO}, {ONE, TWO}, [ONE]).lost == 1

    def test_a_turn_stored_twice_is_doubled_even_if_not_acknowledged(self) -> None:
        count = compare({ONE}, {ONE, TWO}, [ONE, TWO, TWO, TWO])
        assert (count.lost, count.doubled) == (0, 2)

    def test_a_turn_that_was_not_acknowledged_may_be_missing(self) -> None:
        for stored in ([], [ONE]):
            count = compare(set(), {ONE}, stored)
            assert (count.acknowledged, count.lost, count.doubled) == (0, 0, 0)

    def test_turns_of_others_are_ignored(self) -> None:
        assert compare({ONE}, {ONE}, [ONE, THREE, THREE]).doubled == 0

    def test_the_same_mark_of_two_roles_is_two_turns(self) -> None:
        ledger, mark = Ledger(), new_mark()
        ledger.send(("user", mark), ("assistant", mark))
        ledger.acknowledge(("user", mark), ("assistant", mark))
        count = ledger.count([("user", mark)])
        assert (count.acknowledged, count.lost) == (2, 1)

    def test_chat_rounds_are_counted_separately(self) -> None:
        chat, other = (("user", new_mark(is_chat=True)) for _ in range(2))
        count = compare({ONE, chat, other}, {ONE, chat, other}, [chat])
        assert (count.acknowledged, count.lost, count.rounds, count.rounds_lost) == (3, 2, 2, 1)
        assert marks_in(f"Understood: {chat[1]}.") == [chat[1]]

    def test_a_mark_is_found_in_a_text(self) -> None:
        mark = new_mark()
        assert marks_in(f"Understood: {mark}, noted.") == [mark]


class TestReport:
    def test_a_row_passes_if_nothing_was_lost_or_duplicated_and_the_site_recovered(self) -> None:
        assert Row("x", seconds=[1.0]).is_well
        assert not Row("x", lost=1).is_well
        assert not Row("x", doubled=1).is_well
        assert not Row("x", seconds=[1.0, None]).is_well

    def test_the_table_has_durations_and_parts_not_tried(self) -> None:
        text = table([Row("a kill", 2, 10, seconds=[1.0, 3.0]), Row("a hang", 1, seconds=[None]), not_tried("b", "no")])
        _, _, kill, hang, other = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
        assert kill[1:8] == ["a kill", "2", "10", "0", "0", "2.0", "3.0"]
        assert hang[7] == "never"
        assert other[2] == "not tried" and other[10] == "no"

    def test_the_summary_has_remarks_but_no_wait_channels(self) -> None:
        text = summary([Row("a kill", 2, 10, seconds=[1.0, 3.0], places={"epoll": 2}, remarks=["one"])])
        [kill] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
        assert kill == ["a kill", "2", "10", "0", "0", "2.0", "3.0", "one"]

    def test_rows_of_several_runs_are_added_with_their_failures(self) -> None:
        first = Row("a kill", 2, 10, rounds=3, seconds=[1.0, 3.0], told=["log"], places={"epoll": 2}, remarks=["one"])
        other = Row("a kill", 1, 5, 1, rounds=1, seconds=[2.0], told=["log", "page"], places={"epoll": 1, "futex": 4})
        [kill, hang] = added([first, Row("a hang"), other])
        assert (kill.times, kill.acknowledged, kill.lost, kill.rounds, kill.seconds) == (3, 15, 1, 4, [1.0, 3.0, 2.0])
        assert (kill.told, kill.places, kill.remarks) == (["log", "page"], {"epoll": 3, "futex": 4}, ["one"])
        assert kill.cells()[-1] == "in futex 4, epoll 3; one"
        assert not kill.is_well and hang.is_well

    def test_quantiles_are_computed_from_the_measurements(self) -> None:
        assert quantiles([0.1] * 99 + [5.0]) == "0.10, 5.00, 5.00 s"
        assert quantiles([]) == "–"

    def test_a_timeout_names_the_missing_condition(self) -> None:
        with pytest.raises(SiteNotReady, match="the moon"):
            wait_for("the moon", lambda: False, 0.05, pause=0.01)


def careless(course: Course) -> Iterator[Row]:
    """A part of the drill whose site has lost a turn."""
    yield Row("a careless site", 1, acknowledged=2, lost=1, seconds=[0.1])


def test_a_drill_that_loses_data_reports_it_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(PARTS, "careless", careless)
    with pytest.raises(CommandError, match=r"Lost, duplicated, or not recovered: a careless site\."):
        call_command(Command(), "careless", json=tmp_path / "rows.json")
    assert "a careless site" in capsys.readouterr().out
    assert '"lost": 1' in (tmp_path / "rows.json").read_text()


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(CommandError, match="No such part: earthquake"):
        call_command(Command(), "earthquake")


def test_a_part_can_be_added_to_earlier_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PARTS, "tidy", lambda course: [Row("a tidy site", 1, 4, seconds=[0.5])])
    call_command(Command(), "tidy", json=tmp_path / "rows.json")
    call_command(Command(), "tidy", after=tmp_path / "rows.json", json=tmp_path / "both.json")
    [row] = json.loads((tmp_path / "both.json").read_text())
    assert (row["times"], row["acknowledged"], row["seconds"]) == (2, 8, [0.5, 0.5])


def test_an_invalid_file_of_results_is_named_before_the_drill_starts(tmp_path: Path) -> None:
    for text in ("no JSON", '["a"]', '[{"fault": "x", "color": "red"}]'):
        (tmp_path / "rows.json").write_text(text)
        with pytest.raises(CommandError, match=r"rows\.json can't be read as the rows of a drill"):
            call_command(Command(), after=tmp_path / "rows.json")


@pytest.mark.django_db(transaction=True)
class TestDatabase:
    """The accounts of a site are read from its database."""

    @pytest.fixture
    def site(self) -> Iterator[Site]:
        """A site on the test's database that is not started."""
        with Provider() as provider:
            site = Site(provider, database_url())
            yield site
            site.folder.rmdir()

    def test_a_deleted_turn_is_lost_and_a_copied_turn_is_doubled(
        self, ada: UserProfile, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("drill.recovery.REPLAY_SECONDS", 0)
        ledger, marks = Ledger(), [new_mark() for _ in range(4)]
        said = [NewMessage(role="user", content=f"Note {mark}.") for mark in marks]
        ledger.send(*(("user", mark) for mark in marks))
        ledger.acknowledge(*(("user", mark) for mark in marks))
        append(ada, "s1", said)
        whole, hurt = Row("whole"), Row("hurt")
        settle(site, ledger, whole)
        Message.objects.get(sequence=1).delete()
        append(ada, "s1", said[2:3])
        settle(site, ledger, hurt)
        assert (whole.acknowledged, whole.lost, whole.doubled) == (4, 0, 0)
        assert (hurt.acknowledged, hurt.lost, hurt.doubled) == (4, 1, 1)

    def test_an_additional_database_is_dropped_afterward(self, site: Site) -> None:
        with temporary_database(database_url()) as made:
            name = urlsplit(made).path[1:]
            with psycopg.connect(made) as connection:
                assert connection.execute("SELECT to_regclass('sessions_app_message')").fetchone() == (None,)
        assert site.number("SELECT count(*) FROM pg_database WHERE datname = %s", name) == 0

    def test_a_job_that_failed_since_the_start_is_lost(self, ada: UserProfile, site: Site) -> None:
        began = timezone.now()
        Job.objects.create(process="embed", user=ada, requested_by="t", status="failed")
        old = began - timedelta(hours=1)
        Job.objects.create(process="roll_summary", user=ada, requested_by="t", status="failed", queued_at=old)
        row = Row("hurt")
        work_lost_or_doubled(site, row, began)
        assert row.lost == 1
        assert row.remarks == ["1 jobs failed permanently"]

    def test_a_drill_with_invalid_model_answers_fails(self, ada: UserProfile, site: Site) -> None:
        began = timezone.now()
        EngineCall.objects.create(
            purpose="summary", engine="drill", latency_ms=1, ok=False, error_kind="invalid_answer"
        )
        row = Row("hurt", seconds=[1.0])
        work_lost_or_doubled(site, row, began)
        assert not row.is_well and row.remarks == ["1 answers of the models were rejected"]

    def test_a_correction_counts_as_lost_if_missing_and_doubled_if_made_twice(
        self, ada: UserProfile, site: Site
    ) -> None:
        act, mark = Correct(site, threading.Event()), "mark0123456789abcdef"
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        fact, other = (note(stream, text, atom_type="fact") for text in item_texts(mark))
        act.done.append((mark, [str(fact.atom_id), str(other.atom_id)]))
        assert act.account(site).lost  # acknowledged, but not done yet
        made = correct(fact, replacement_request(item_texts(mark, "Bergen")[0]), requested_by="t")
        assert (act.account(site).lost, act.account(site).doubled) == (0, 0)
        MemoryAtom.objects.filter(pk=other.pk).update(state="active")
        assert act.account(site).doubled == 1
        Correction.objects.create(user=ada, fact=fact, kind=made.kind, before="", after="", requested_by="t")
        assert act.account(site).doubled == 3

    def test_retracted_items_that_are_still_stored_are_reported(self, ada: UserProfile, site: Site) -> None:
        act, mark = Retract(site, threading.Event()), new_mark()
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        ids = [note(stream, text, written_by="key:t").atom_id for text in item_texts(mark)]
        act.done.append((mark, [str(one) for one in ids]))
        assert act.account(site).lost and act.account(site).doubled
        retract_items(ada, ItemSelection(ids), reason="drill", requested_by="t")
        assert (act.account(site).lost, act.account(site).doubled) == (0, 0)
        rewrite(stream, f"- {mark} lives in Oslo.")
        assert act.account(site).doubled == 1


def test_an_installation_on_another_database_uses_the_same_logins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEB_DATABASE_URL", "postgres://site:secret@db.internal/memory?sslmode=require")
    with Provider() as provider:
        external = environment(provider, "postgres://owner@db.internal/memory_drill_1", tmp_path)
        embedded = environment(provider, "", tmp_path)
    assert external["WEB_DATABASE_URL"] == "postgres://site:secret@db.internal/memory_drill_1?sslmode=require"
    assert not embedded["WEB_DATABASE_URL"]
