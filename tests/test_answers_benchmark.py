"""The answers benchmark, run to its end with stand-ins for reader and judge, and the files that it reads."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from benchmarks.answers import __main__ as answers
from benchmarks.answers.kept import KeptResults
from benchmarks.conversations import BadConversations, read_folder
from memoryproject.conf import BASE_DIR
from tests.support.folders import migrated
from tests.support.openai_server import Handler, OpenAIServer, error
from tests.test_benchmarks import KILN, table, write

LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Bo",
        "session_2_date_time": "12:09 am on 13 September, 2023",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Nice!"}],
        "session_10_date_time": "1:56 pm on 8 May, 2024",
        "session_10": [{"speaker": "Ada", "dia_id": "D10:1", "text": "Look.", "blip_caption": "a red kiln"}],
        "session_11_date_time": "1:56 pm on 9 May, 2024",
    },
    "qa": [
        {"question": "Which color?", "answer": "red", "evidence": ["D10:1; D2:1", "D9:9"], "category": 4},
        {"question": "Who fired it?", "adversarial_answer": "Bo", "evidence": ["D10:1"], "category": 5},
    ],
}
LONGMEMEVAL = {
    "question_id": "q1",
    "question_type": "temporal-reasoning",
    "question": "How many days ago?",
    "answer": 3,
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_dates": ["2023/05/27 (Sat) 02:21", "2023/05/20 (Sat) 02:21"],
    "haystack_session_ids": ["b", "a"],
    "haystack_sessions": [
        [{"role": "user", "content": "I bought a kiln.", "has_answer": True}, {"role": "assistant", "content": " "}],
        [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}],
    ],
}


def test_locomo_conversations_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "locomo10.json").write_text(json.dumps([LOCOMO, LOCOMO | {"sample_id": "conv-2"}]))
    first, second = read_folder(tmp_path)
    assert (first.id, second.id, first.speakers) == ("conv-1", "conv-2", ("Ada", "Bo"))
    assert [session.n for session in first.sessions] == [2, 10]
    [message] = first.messages(first.sessions[1])
    assert message["content"] == "Ada: Look. [shares a photo of a red kiln]"
    assert message["created_at"] == "2024-05-08T13:56:00+00:00"
    asked, unanswerable = first.questions
    assert (asked.evidence, asked.label) == (["D10:1", "D2:1"], "one fact")
    assert (unanswerable.a, unanswerable.is_answered) == ("", False)


def test_longmemeval_questions_can_be_read(tmp_path: Path) -> None:
    abstaining = LONGMEMEVAL | {"question_id": "q2_abs"}
    (tmp_path / "longmemeval.json").write_text(json.dumps([LONGMEMEVAL, abstaining]))
    first, second = read_folder(tmp_path)
    assert [session.at.day for session in first.sessions] == [20, 27]  # sorted by time
    assert [message["content"] for message in first.messages(first.sessions[0])] == ["Hello.", "Hi."]
    assert [message["role"] for message in first.messages(first.sessions[0])] == ["user", "assistant"]
    [asked], [unanswerable] = first.questions, second.questions
    assert (asked.evidence, asked.label, asked.asked_at) == (["1:0"], "temporal-reasoning", "2023/05/30 (Tue) 23:40")
    assert (unanswerable.label, unanswerable.is_answered) == ("abstention", False)


@pytest.mark.parametrize("content", [[{"q": 1}], [1], [LOCOMO | {"qa": [{}]}], [LONGMEMEVAL | {"haystack_dates": []}]])
def test_a_file_in_another_format_is_rejected_by_name(tmp_path: Path, content: Any) -> None:
    (tmp_path / "odd.json").write_text(json.dumps(content))
    with pytest.raises(BadConversations, match=r"odd\.json: "):
        read_folder(tmp_path)


def test_an_incomplete_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    KeptResults(path).keep(("a", "0"), text="Turin")
    with path.open("a") as file:
        file.write('{"key": ["a", "1"], "te')
    kept = KeptResults(path)
    assert ("a", "0") in kept and ("a", "1") not in kept
    kept.keep(("a", "1"), text="Friday")
    assert KeptResults(path)["a", "1"]["text"] == "Friday"


class Models:
    """A stand-in for both models. The reader quotes the memory, and the judge compares with the correct answer."""

    def __init__(self) -> None:
        self.read = self.judged = 0
        self.fails_to_judge = False

    def __call__(self, handler: Handler, body: dict[str, Any]) -> None:
        prompt = body["messages"][0]["content"]
        memory = re.search(r"<memory>\n(.*)\n</memory>", prompt, re.DOTALL)
        if memory:
            self.read += 1
            known = [line for line in memory[1].splitlines() if _asks_about(prompt, line)]
            return handler.complete("; ".join(known) or "not known")
        self.judged += 1
        if self.fails_to_judge:
            return error(500)(handler, body)
        response = prompt.partition("Model Response: ")[2].partition("\n\n")[0]
        gold = prompt.partition("Correct Answer: ")[2].partition("\n\n")[0]
        handler.complete("Yes." if (gold in response if gold else response == "not known") else "No.")
        return None


def _asks_about(prompt: str, line: str) -> bool:
    question = prompt.rpartition("Question: ")[2]
    return any(word in question and word in line for word in ("kiln", "sister", "piano"))


@pytest.fixture
def models() -> Iterator[tuple[Models, str]]:
    with OpenAIServer() as server:
        models = Models()
        server.always(models)
        yield models, server.base_url


def contexts_of(folder: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    """Let a site create the contexts, in another process."""
    code = (
        f"import pathlib, sys, benchmarks.site; benchmarks.site.BEGIN_WITH = pathlib.Path({str(migrated())!r})\n"
        "from benchmarks.answers import __main__ as answers\n"
        "sys.exit(answers.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, str(folder), "--out", str(out), "--limit", "3", "--contexts-only"]
    env = os.environ | {"WEB_WORKERS": "1", "EMBEDDING__PROVIDER": "none"}
    return subprocess.run(command, cwd=BASE_DIR, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.slow(seconds=40)
def test_answers_are_judged_and_an_interrupted_run_continues(
    tmp_path: Path,
    models: tuple[Models, str],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = tmp_path / "conversations", tmp_path / "out"
    folder.mkdir()
    write(folder, KILN)
    standing, url = models

    done = contexts_of(folder, out)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert (standing.read, standing.judged) == (0, 0)
    contexts = [json.loads(line) for line in (out / "contexts.jsonl").read_text().splitlines()]
    assert [one["key"][2] for one in contexts[:7]] == [
        "memory, 1,000",
        "memory, 3,000",
        "turns, 1,000",
        "turns, 3,000",
        "evidence",
        "whole transcript",
        "nothing",
    ]
    assert all(one["tokens"] <= 1_000 for one in contexts if one["key"][2].endswith("1,000"))
    assert not any("When does the kiln arrive?" in one["context"] for one in contexts)

    reader = {"READER_BASE_URL": url, "READER_MODEL": "reader", "JUDGE_MODEL": "judge", "JUDGE_BASE_URL": url}
    for name, value in reader.items():
        monkeypatch.setenv(name, value)
    settings.ENGINE = settings.ENGINE.model_copy(update={"prices": {"reader": (1.0, 2.0)}})
    monkeypatch.setattr("benchmarks.answers.models.TRIES", 1)
    arguments = [str(folder), "--out", str(out), "--limit", "3"]
    standing.fails_to_judge = True
    assert answers.main(arguments) == 1
    assert "21 of 21 verdicts are missing" in capsys.readouterr().err
    assert standing.read == 21

    standing.fails_to_judge = False
    assert answers.main(arguments) == 0
    assert standing.read == 21  # no question was read again
    printed = capsys.readouterr().out
    rows = {row["condition"]: row for row in table(printed, "Answers from contexts")}
    for condition in ("memory, 1,000", "turns, 3,000", "evidence", "whole transcript"):
        assert rows[condition]["time"] == "1.000 of 1", rows
    assert (rows["nothing"]["time"], rows["nothing"]["not answered"]) == ("0.000 of 1", "1.000 of 1")
    costs = {row["purpose"]: row for row in table(printed, "Calls and tokens")}
    assert costs["reader (reader)"]["calls"] == "21" and float(costs["reader (reader)"]["USD"]) > 0
    assert costs["judge (judge)"]["USD"] == "–"


def test_a_missing_reader_is_reported_with_its_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        answers.main([str(tmp_path), "--out", str(tmp_path / "out")])
    assert "READER_MODEL is not set" in capsys.readouterr().err
