"""That the benchmarks run: what they measure is not looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.support.openai_server import OpenAIServer

SMALL = """
import importlib
from types import SimpleNamespace
from benchmarks import __main__ as run, seed

few = {
    "ROUNDS": 2, "REPEATS": 2, "WARM_UP": 0.1, "HTTP_SECONDS": 0.3, "RAW_SECONDS": 0.2, "TURNS": 200,
    "TURNS_EACH": 10, "LENGTHS": (200, 1_000), "MEMORIES": (10, 100), "SIZES": ((300, 1), (1_000, 50)),
    "SESSIONS": 20, "SETTLED": 3, "FILE_MB": 1, "AMONG": 1_000, "MOMENTS": 20, "FACTS": 20,
    "IDLE": 5, "STREAMS": (1, 2), "SECONDS": 0.3, "PAUSES": 2, "PAUSE": 0.1, "OTHERS": 30, "OWN_TURNS": 100, "PAGES": 9,
}

def small(name):
    topic = importlib.import_module(name)
    for constant in few.keys() & vars(topic).keys():
        setattr(topic, constant, few[constant])
    return topic

seed.PEOPLE = 20
run.importlib = SimpleNamespace(import_module=small)
raise SystemExit(run.main([]))
"""

TITLES = (
    "Append over HTTP",
    "Load the live window",
    "Build moments of",
    "Context over HTTP",
    "Search facts",
    "Settle ",
)


def test_each_measures_the_platform_beside_raw_statements() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    for title in (
        "Append over HTTP",
        "Load the live window",
        "Build moments of",
        "Context over HTTP",
        "Search facts",
        "First byte of a streamed answer",
        "Settle ",
        "Archive turns",
        "Import",
        "Erase a person",
        "Read a moment over MCP",
    ):
        assert title in done.stdout


def test_an_unknown_one_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"], cwd=settings.BASE_DIR, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "speed" in done.stderr


def test_a_long_conversation_is_counted_and_drawn(tmp_path: Path) -> None:
    few = "import benchmarks.rounds as rounds; rounds.ROUNDS, rounds.THRESHOLDS = 12, (12,)"
    picture = tmp_path / "rounds.svg"
    done = subprocess.run(
        [sys.executable, "-c", f"{few}; raise SystemExit(rounds.main([{str(picture)!r}]))"],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [row["moments"] for row in table(done.stdout)] == ["0", "2"]
    assert "with, moments after 12 turns" in picture.read_text()


# --- quality of recall ---


def conversation(name: str, said: list[str], questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Of two sessions, between Ada and Bo in turn."""
    turns = [{"id": f"t{n}", "speaker": ("Ada", "Bo")[n % 2], "text": text} for n, text in enumerate(said)]
    times = ("2026-03-02T08:00:00Z", "2026-03-09T08:00:00Z")
    sessions = [{"n": n, "at": at, "turns": turns[2 * n : 2 * n + 2]} for n, at in enumerate(times)]
    return {"id": name, "speakers": ["Ada", "Bo"], "sessions": sessions, "questions": questions}


def question(q: str, category: int, *evidence: str) -> dict[str, Any]:
    return {"q": q, "a": "–", "category": category, "evidence": evidence}


KILN = conversation(
    "kiln",
    ["The kiln arrives on Friday.", "Who carries it upstairs?", "My sister moved to Turin.", "Give her my regards!"],
    [
        question("When does the kiln arrive?", 2, "t0"),
        question("Where does the sister of Ada live, and what is to be carried?", 1, "t1", "t2"),
        question("Who sold the piano?", 5, "t3"),
        question("What is the weather like?", 3),
    ],
)
GARDEN = conversation(
    "garden",
    ["I planted quinces.", "They need years.", "A hedgehog sleeps in the shed.", "Leave it there until April."],
    [
        question("What animal sleeps in the shed?", 4, "t2"),
        question("Does the hedgehog like fruit?", 3, "t2", "t0"),  # no word of t0, nor of any turn near it
    ],
)


def write(folder: Path, *conversations: dict[str, Any]) -> Path:
    for content in conversations:
        (folder / f"{content['id']}.json").write_text(json.dumps(content))
    return folder


def recall_quality(*arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.recall_quality", *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env=os.environ | {"EMBEDDING__PROVIDER": "auto", "EMBEDDING__BASE_URL": "", "EMBEDDING__API_KEY": ""} | env,
        capture_output=True,
        text=True,
        timeout=300,
    )


def table(printed: str) -> list[dict[str, str]]:
    """The rows of the Markdown table in what was printed."""
    header, _, *rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_recall_is_scored_over_the_questions_that_have_an_answer(tmp_path: Path) -> None:
    done = recall_quality(write(tmp_path, KILN, GARDEN))
    assert done.returncode == 0, done.stderr[-3_000:]
    [text] = table(done.stdout)
    assert float(text.pop("p50 ms")) > 0
    assert text == {
        "mode": "text",
        "recall@10": "0.875",
        "recall@5": "0.875",
        "conversation garden": "0.750",
        "conversation kiln": "1.000",
        "category 1": "1.000",
        "category 2": "1.000",
        "category 3": "0.500",
        "category 4": "1.000",
        "questions": "4",
    }


def test_recall_is_scored_in_every_mode_with_a_provider(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        done = recall_quality(write(tmp_path, KILN), EMBEDDING__BASE_URL=server.base_url)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [row["mode"] for row in table(done.stdout)] == ["text", "semantic", "hybrid"]
    assert {row["questions"] for row in table(done.stdout)} == {"2"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("not JSON", "Invalid JSON"),
        (json.dumps(KILN | {"speakers": ["Ada"]}), "speakers"),
        (json.dumps(KILN | {"speakers": ["Ada", "Cy"]}), "Bo"),
        (json.dumps(KILN | {"sessions": KILN["sessions"][:1]}), "t2"),
        (json.dumps(KILN | {"sessions": KILN["sessions"] * 2}), "same id"),
        (json.dumps(GARDEN), "garden"),
    ],
)
def test_a_file_that_is_no_conversation_is_named(tmp_path: Path, wrong: str, told: str) -> None:
    write(tmp_path, GARDEN)
    (tmp_path / "wrong.json").write_text(wrong)
    done = recall_quality(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [sentence] = done.stderr.splitlines()
    assert "wrong.json: " in sentence
    assert told in sentence


def test_a_folder_without_conversations_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        done = recall_quality(tmp_path / folder)
        assert (done.returncode, done.stdout) == (2, "")
        [sentence] = done.stderr.splitlines()
        assert folder in sentence
    assert recall_quality().returncode == 2
