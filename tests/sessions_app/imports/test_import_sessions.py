"""Importing our JSONL format."""

import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from moments_app.models import Job
from sessions_app.imports import import_sessions as importer
from sessions_app.imports import text_process
from sessions_app.imports.import_sessions import import_sessions
from sessions_app.imports.source import Owner, Source, formats
from sessions_app.management.commands import import_sessions as command
from sessions_app.models import Message, Session
from sessions_app.models.application import DEFAULT
from sessions_app.text.length import estimate_tokens
from tests.support.exports import as_lines

pytestmark = pytest.mark.django_db(transaction=True)


def line(content: str, **fields: Any) -> dict[str, Any]:
    return {"user_id": "ada", "session_id": "s1", "role": "user", "content": content, **fields}


def imported(path: Path, *lines: Any) -> tuple[str, str]:
    path.write_text("\n".join(text if isinstance(text, str) else json.dumps(text) for text in lines), "utf-8")
    out, err = StringIO(), StringIO()
    call_command("import_sessions", str(path), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_an_import_keeps_order_times_and_sessions(tmp_path: Path) -> None:
    out, _ = imported(
        tmp_path / "f",
        line("one", created_at="2020-02-03T04:05:06+01:00", agent_id="coach"),
        line("two", session_id="s2"),
        "",
        line("three", role="assistant"),
    )
    assert "3 messages added" in out
    first = Session.objects.get(session_id="s1")
    assert (first.source, first.agent_id) == ("import", "coach")
    assert [m.content for m in first.messages.in_order()] == ["one", "three"]
    assert first.messages.in_order()[0].created_at.isoformat() == "2020-02-03T03:05:06+00:00"


def test_an_import_can_be_repeated(tmp_path: Path) -> None:
    lines = [line("same"), line("same"), line("other", external_id="x"), line("elsewhere", session_id="s2")]
    imported(tmp_path / "f", *lines)
    out, _ = imported(tmp_path / "f", *lines)
    assert "0 messages added, 4 already stored" in out
    assert Message.objects.count() == 4


def test_a_line_with_another_text_under_a_known_id_is_rejected(tmp_path: Path) -> None:
    imported(tmp_path / "f", line("one", external_id="a"))
    lines = [line("one", external_id="a"), line("two", external_id="a"), line("x", external_id="b")]
    path = as_lines(tmp_path / "g", *lines, line("y", external_id="b"))
    err = StringIO()
    with pytest.raises(CommandError, match="1 messages added, 1 already stored, 2 records rejected"):
        call_command("import_sessions", str(path), stderr=err)
    assert "line 2:" in err.getvalue() and "line 4:" in err.getvalue() and "external_id" in err.getvalue()
    assert [message.content for message in Message.objects.order_by("sequence")] == ["one", "x"]


def test_the_rest_of_a_session_in_a_second_file_is_rejected_with_the_reason(tmp_path: Path) -> None:
    """Without an external_id, only its position identifies a message."""
    imported(tmp_path / "f", line("one"))
    err = StringIO()
    with pytest.raises(CommandError, match="1 records rejected"):
        call_command("import_sessions", str(as_lines(tmp_path / "g", line("two"))), stderr=err)
    assert "the file must contain the session from its start" in err.getvalue()


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("other", [{"content": "two"}, {"role": "assistant"}, {"payload": {"a": 2}}, {"payload": None}])
def test_a_line_is_compared_with_the_stored_message_as_in_an_append(
    tmp_path: Path, other: dict[str, Any], is_archived: bool
) -> None:
    first = line("one", external_id="a", payload={"a": 1, "b": "c"})
    imported(tmp_path / "f", first)
    if is_archived:
        Message.objects.turns().archive()
    assert "1 already stored" in imported(tmp_path / "f", first)[0]
    with pytest.raises(CommandError, match="0 messages added, 0 already stored, 1 records rejected"):
        imported(tmp_path / "g", first | other)


def test_bad_lines_are_named_and_skipped_and_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f"
    bad = ["{", json.dumps(line("x", role="robot")), "[1]", json.dumps(line("y", colour="red"))]
    path.write_text("\n".join([json.dumps(line("good")), *bad, json.dumps(line("good too"))]))
    err = StringIO()
    with pytest.raises(CommandError, match="2 messages added, 0 already stored, 4 records rejected"):
        call_command("import_sessions", str(path), stderr=err)
    for number, reason in ((2, "JSON"), (3, "role"), (4, "dictionary"), (5, "colour")):
        assert any(f"line {number}:" in text and reason in text for text in err.getvalue().splitlines())
    assert Message.objects.count() == 2


@pytest.mark.slow
def test_a_session_larger_than_a_batch_is_imported_completely(tmp_path: Path) -> None:
    imported(tmp_path / "f", *(line(str(n)) for n in range(1203)))
    assert Session.objects.get().message_count == 1203


@pytest.mark.slow
def test_interleaved_sessions_keep_their_order_and_share_batches(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "f", *(line(str(n), session_id=f"s{n % 2}") for n in range(1_200)))
    sizes: list[int] = []
    found = formats()["jsonl"].read(Source(path), Owner())
    import_sessions(found, application=DEFAULT, on_batch=lambda so_far: sizes.append(so_far.added))
    assert sizes == [500, 600, 1_100, 1_200]
    for number, session in enumerate(Session.objects.order_by("session_id")):
        said = session.messages.in_order().values_list("content", flat=True)
        assert list(said) == [str(n) for n in range(number, 1_200, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("session_of", [lambda n: f"s{n // 7}", lambda n: f"s{n % 3}"], ids=["in order", "interleaved"])
def test_an_import_with_a_text_process_stores_the_same_values_as_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_of: Callable[[int], str]
) -> None:
    monkeypatch.setattr(importer, "PORTION_SIZE", 5 * importer.MESSAGE_SIZE)
    monkeypatch.setattr(text_process, "START_SIZE", 1)
    lines = [
        line(
            f"The kiln reached {n} degrees.", name="Bea", payload={"n": n} if n % 2 else None, session_id=session_of(n)
        )
        for n in range(40)
    ]
    out, _ = imported(tmp_path / "f", *lines)
    assert "40 messages added" in out
    for session in Session.objects.all():
        stored = session.messages.in_order()
        assert [m.content for m in stored] == [
            one["content"] for one in lines if one["session_id"] == session.session_id
        ]
        assert [m.sequence for m in stored] == list(range(session.message_count))
        assert session.total_tokens == sum(estimate_tokens(m.content, m.payload) for m in stored)
    assert [Message.objects.matching(word).count() for word in ("kiln", "Bea", "39")] == [40, 40, 1]
    assert "0 messages added, 40 already stored" in imported(tmp_path / "f", *lines)[0]


@pytest.mark.slow
def test_an_error_in_the_text_process_is_not_reported_as_a_kill(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text_process, "START_SIZE", 1)
    with text_process.TextProcess() as process:
        process.begin([text_process.Text("", "not JSON", payload={1, 2})])
        with pytest.raises(text_process.ProcessFailed):
            process.finish()
    assert "TypeError" in capfd.readouterr().err


@pytest.mark.slow
def test_a_killed_text_process_is_reported_and_the_next_import_adds_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "PORTION_SIZE", 5 * importer.MESSAGE_SIZE)
    monkeypatch.setattr(text_process, "START_SIZE", 1)
    lines = [line(f"The kiln reached {n} degrees.", session_id=f"s{n}") for n in range(40)]
    finish = text_process.TextProcess.finish

    def finish_and_kill(process: text_process.TextProcess) -> list[text_process.Processed]:
        processed = finish(process)
        if Message.objects.exists():
            assert process._process
            process._process.kill()
            process._process.wait()
        return processed

    monkeypatch.setattr(text_process.TextProcess, "finish", finish_and_kill)
    with pytest.raises(CommandError, match="Run the import again"):
        imported(tmp_path / "f", *lines)
    monkeypatch.undo()
    assert 0 < Message.objects.count() < 40
    imported(tmp_path / "f", *lines)
    assert Message.objects.count() == 40


@pytest.mark.slow
@pytest.mark.usefixtures("rolling")
def test_a_batch_queues_one_summary_for_any_number_of_rounds(tmp_path: Path) -> None:
    imported(tmp_path / "f", *(line(str(n), role=("user", "assistant")[n % 2]) for n in range(400)))
    assert [job.process for job in Job.objects.filter(process="roll_summary")] == ["roll_summary"]


def test_progress_is_reported_except_at_verbosity_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SECONDS_BETWEEN", {False: 0})
    _, err = imported(tmp_path / "f", line("one"), line("two", session_id="s2"))
    first, last = err.splitlines()
    assert "of 0.0 MiB: 1 messages added" in first
    assert "MiB: 2 messages added" in last
    quiet = StringIO()
    call_command("import_sessions", str(tmp_path / "f"), verbosity=0, stdout=StringIO(), stderr=quiet)
    assert quiet.getvalue() == ""


def test_a_path_that_is_not_a_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("nowhere", "pipe", "."):
        with pytest.raises(CommandError, match=str(tmp_path / name)):
            call_command("import_sessions", str(tmp_path / name))
