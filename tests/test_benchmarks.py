"""Tests that the benchmarks run and that those with scores compute them correctly. Their speed is not tested."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.utils import timezone

from benchmarks import __main__ as topics
from benchmarks import growth, languages, lean, lives, memory_tokens, memory_words, prompt_caches, quickstart, walk
from benchmarks import recall_quality as quality
from benchmarks.clients import Http
from benchmarks.conversations import read_folder
from benchmarks.evidence import Statement, share_among, share_in_text
from benchmarks.figures import Figure
from benchmarks.kept import Results, judged, print_comparison
from benchmarks.measures import content_words, fill_budget, same_beginning, stands_in
from benchmarks.request import KINDS
from benchmarks.steady import CONVERSATIONS, Seen
from benchmarks.stored import StoredConversation, store
from moments_app.models import Job
from moments_app.models.job import TASK
from sessions_app.models import ApiKey, Message
from sessions_app.text.length import estimate_tokens
from tests.support.folders import migrated, migrated_folder
from tests.support.live import live_site
from tests.support.openai_server import OpenAIServer
from tests.support.processes import database_url
from tests.support.running import of_folder
from tests.support.waiting import wait_until

SMALL = """
import importlib, sys
from types import SimpleNamespace
from benchmarks import __main__ as run, seed

few = {
    "ROUNDS": 2, "REPEATS": 2, "WARM_UP": 0.02, "HTTP_SECONDS": 0.02, "RAW_SECONDS": 0.02, "TURNS": 100,
    "TURNS_EACH": 20, "LENGTHS": (60, 300), "MEMORIES": (10, 100), "SIZES": ((300, 1), (300, 10)),
    "SESSIONS": 6, "SETTLED": 2, "FILE_MB": 1, "AMONG": 1_000, "MOMENTS": 20, "FACTS": 20,
    "IDLE": 5, "STREAMS": (1, 2), "SECONDS": 0.1, "PAUSES": 2, "PAUSE": 0.1, "OTHERS": 10, "OWN_TURNS": 100, "PAGES": 8,
    "CLIENTS": 2, "OWNERS": 3, "QUERIES": 2, "BASES": 20, "EVENTS": 10,
    "settle": lambda: None,  # of a few rows the planner knows enough from the first time
}

def small(name):
    topic = importlib.import_module(name)
    for constant in few.keys() & vars(topic).keys():
        setattr(topic, constant, few[constant])
    return topic

seed.PEOPLE = 20
run.importlib = SimpleNamespace(import_module=small)
raise SystemExit(run.main(sys.argv[1:]))
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Run:
    """Return a function that runs benchmark code with arguments and environment, with one web process."""

    def measure(code: str, *arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
        begin = f"import pathlib, benchmarks.site; benchmarks.site.BEGIN_WITH = pathlib.Path({str(migrated())!r})"
        return subprocess.run(
            [sys.executable, "-c", f"{begin}\n{code}", *map(str, arguments)],
            cwd=settings.BASE_DIR,
            env=os.environ | {"WEB_WORKERS": "1"} | env,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return measure


@pytest.fixture
def in_this_process(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let benchmarks of a web server alone measure a site in this process, because another process starts slowly."""

    @contextmanager
    def site(*_: object) -> Iterator[SimpleNamespace]:
        key = ApiKey.objects.issue("benchmark")[1]
        yield SimpleNamespace(port=urlsplit(url).port, key=key, conninfo=database_url())

    with live_site() as url:
        for benchmark in (languages, prompt_caches):
            monkeypatch.setattr(benchmark, "Site", site)
        yield


# One topic over HTTP, and one with a command and in this process. `make bench-all` runs all topics with few rows first.
TOPICS = {"append": "Append over HTTP", "settle": "Settle "}
ALL_TOPICS = {
    "recall": "Search facts",
    "build": "Build moments of",
    "context": "Context over HTTP",
    "chat": "First byte of a streamed answer",
    "retention": "Archive turns",
    "imports": "Import",
    "erase": "Erase a person",
    "mcp": "Read a moment over MCP",
    "admin": "Pages of the admin",
    **TOPICS,
}
TRIED = ALL_TOPICS if os.environ.get("EVERY_TOPIC") else TOPICS


@pytest.mark.slow(seconds=15)
def test_topics_compare_the_platform_with_raw_statements(run: Run) -> None:
    done = run(SMALL, *TRIED)
    assert done.returncode == 0, done.stderr[-3_000:]
    for title in TRIED.values():
        assert f"### {title}" in done.stdout


def test_an_unknown_topic_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        topics.main(["speed"])
    assert "speed" in capsys.readouterr().err


def test_results_are_written_and_compared_with_later_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Results("Two cores.", {"Append": [Figure("one", 2.0, 3.0, 1.0, 2.0), Figure("two", 2.0, 3.0, 1.0, 2.0)]})
    before.write(tmp_path / "kept.json")
    now = Results("Two cores.", {"Append": [Figure("one", 9.0, 9.0, 3.0, 3.0), Figure("three", 1.0, 1.0, 1.0, 1.0)]})
    print_comparison(now, Results.read(tmp_path / "kept.json"))
    assert [list(row.values()) for row in table(capsys.readouterr().out, "Compared with the saved run")] == [
        ["Append", "one", "3.0", "2.0", "1.50", "slower"],
        ["Append", "three", "1.0", "", "", "new"],
    ]
    assert [judged(change) for change in (0.7, 0.9, 1.2, 1.3)] == ["faster", "", "", "slower"]


@pytest.mark.slow
def test_a_long_conversation_is_counted_and_drawn(run: Run, tmp_path: Path) -> None:
    few = "import benchmarks.rounds as rounds; rounds.ROUNDS, rounds.THRESHOLDS = 12, (12,)"
    picture = tmp_path / "rounds.svg"
    done = run(f"{few}; raise SystemExit(rounds.main([{str(picture)!r}]))")
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [row["moments"] for row in table(done.stdout, "Prompt tokens of a long conversation")] == ["0", "2"]
    assert "with, moments after 12 turns" in picture.read_text()


# --- quality of recall ---

YESTERDAY = timezone.now() - timedelta(days=1)


def conversation(name: str, said: list[str], questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a conversation of two sessions, in which Ada and Bo alternate."""
    turns = [{"id": f"t{n}", "speaker": ("Ada", "Bo")[n % 2], "text": text} for n, text in enumerate(said)]
    times = [(YESTERDAY + timedelta(hours=n)).isoformat() for n in range(2)]
    sessions = [{"n": n, "at": at, "turns": turns[2 * n : 2 * n + 2]} for n, at in enumerate(times)]
    return {"id": name, "speakers": ["Ada", "Bo"], "sessions": sessions, "questions": questions}


def question(q: str, category: int, *evidence: str, answer: str = "–") -> dict[str, Any]:
    return {"q": q, "a": answer, "category": category, "evidence": evidence}


KILN = conversation(
    "kiln",
    ["The kiln arrives on Friday.", "Who carries it upstairs?", "My sister moved to Turin.", "Give her my regards!"],
    [
        question("When does the kiln arrive?", 2, "t0", answer="on Friday"),
        question("Where does the sister of Ada live, and what is to be carried?", 1, "t1", "t2", answer="Turin"),
        question("Who sold the piano?", 5, "t3"),
        question("What is the weather like?", 3),
    ],
)
GARDEN = conversation(
    "garden",
    ["I planted quinces.", "They need years.", "A hedgehog sleeps in the shed.", "Leave it there until April."],
    [
        question("What animal sleeps in the shed?", 4, "t2", answer="a hedgehog"),
        question("Does the hedgehog like fruit?", 3, "t2", "t0"),  # no word of t0 or of a turn near it
    ],
)


def in_one_session(conversation: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation as one session, which is long enough to be settled."""
    first, *others = conversation["sessions"]
    turns = [turn for session in (first, *others) for turn in session["turns"]]
    return conversation | {"sessions": [first | {"turns": turns}]}


def write(folder: Path, *conversations: dict[str, Any]) -> Path:
    for content in conversations:
        (folder / f"{content['id']}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def recall_quality(run: Run) -> Run:
    """Return a function that runs this benchmark with arguments and a stand-in for the embeddings provider."""
    few = "import sys; from benchmarks import recall_quality; recall_quality.settle = lambda: None; "
    # An item is written at the exit of the process, long after the end of the site.
    few += "from sessions_app.database import deferred; "
    few += "deferred.SHORT_INTERVAL = 3600; deferred._buffer.add(None)"

    def measure(*arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
        with OpenAIServer() as server:
            env = {"EMBEDDING__PROVIDER": "openai", "EMBEDDING__BASE_URL": server.base_url} | env
            done = run(f"{few}; sys.exit(recall_quality.main(sys.argv[1:]))", *arguments, **env)
        assert done.returncode == 0, done.stderr[-3_000:]
        return done

    return measure


def table(printed: str, title: str) -> list[dict[str, str]]:
    """Return the rows of the Markdown table under a title in the output."""
    under = printed.partition(f"### {title}\n")[2].partition("\n### ")[0]
    header, _, *rows = [line.strip("| ").split(" | ") for line in under.splitlines() if line.startswith("|")]
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.slow(seconds=45)
def test_recall_is_scored_in_each_state_for_each_search(recall_quality: Run, tmp_path: Path) -> None:
    done = recall_quality(write(tmp_path, *map(in_one_session, (KILN, GARDEN))), "--each", "--limit", 1)
    assert "idle sessions to update: 2\n" in done.stderr
    assert "8 turns archived" in done.stderr
    rows = table(done.stdout, "Evidence in contexts and results")
    states, kinds = ("just said", "settled", "archived"), ("turns", "everything")
    searches = ("words alone", "vectors alone", "default")
    named = {(row["state"], row["kinds"], row["search"]): row for row in rows}
    assert list(named) == [(state, kind, search) for state in states for kind in kinds for search in searches]
    assert {row["questions"] for row in rows} == {"2"}
    for (_state, kind, search), row in named.items():
        has_no_context = (kind, search) == ("everything", "vectors alone")
        assert (row["1,000"], row["R@10"]) == ("" if has_no_context else "1.000", "1.000"), row
    garden, kiln = (table(done.stdout, name) for name in ("garden", "kiln"))
    assert {row["questions"] for row in (*garden, *kiln)} == {"1"}


@pytest.mark.slow
def test_turns_can_be_ranked_by_words_in_an_existing_site_which_is_kept_without_a_running_database(
    recall_quality: Run, tmp_path: Path
) -> None:
    lost = GARDEN | {"questions": [question("Who sold the piano?", 4, "t0"), *GARDEN["questions"]]}
    arguments = (write(tmp_path, lost), "--turns-only", "--limit", 1)
    with migrated_folder() as folder:
        done = recall_quality(*arguments, "--site", folder, EMBEDDING__PROVIDER="none")
        [row] = table(done.stdout, "Evidence in contexts and results")
        assert (row["kinds"], row["search"], row["questions"]) == ("turns", "words alone", "1")
        assert (row["3,000"], row["R@10"]) == ("0.000", "0.000")
        assert of_folder(folder) == []
        assert (folder / "postgres").exists()


def test_a_turn_counts_if_a_statement_derived_from_it_has_half_of_its_words(tmp_path: Path) -> None:
    [conversation] = read_folder(write(tmp_path, KILN))
    stored = StoredConversation(conversation, {turn.id: ("s", n) for n, (_, turn) in enumerate(conversation.turns)})
    asked = conversation.scored[0]  # the evidence: "The kiln arrives on Friday."
    for sources, said, scored in [
        ({"t0"}, "Kiln: Friday", 1),
        ({"t1"}, "Kiln: Friday", 0),
        ({"t0"}, "It comes on Friday", 0),
    ]:
        statement = Statement(frozenset(sources), content_words(said))
        assert share_in_text(stored, asked, said, [statement]) == scored
        assert share_among(stored, asked, [], [], [statement]) == scored
    assert share_in_text(stored, asked, "On Friday the kiln arrives.") == 1
    assert share_in_text(stored, asked, "When does the kiln arrive? Friday") == 0  # the question is removed
    assert (
        share_among(stored, asked, ["t0"])
        == share_among(stored, asked, [], [content_words("kiln arrives Friday")])
        == 1
    )


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("in_this_process")
def test_the_repeated_part_of_each_prompt_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prompt_caches, "ROUNDS", 3)
    assert prompt_caches.main([str(write(tmp_path, KILN))]) == 0
    plans = table(capsys.readouterr().out, "Prompts that stay the same")
    assert [row["plan"] for row in plans] == ["query", "stable"]
    assert all(0 < float(row["minimum"]) <= float(row["mean share"]) <= 1 for row in plans)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The kilns ARE on the 4th, aren't they?", {"kilns", "4th", "aren", "t"}),
        ("Café, à la carte", {"cafe", "la", "carte"}),
        ("公园 at 9", {"公园", "9"}),
        ("我在公园跑步", {"我在", "在公", "公园", "园跑", "跑步"}),
        ("ピアノの試験", {"ヒア", "アノ", "ノの", "の試", "試験"}),
        ("猫", {"猫"}),
        (1995, {"1995"}),
        ("–", set()),
    ],
)
def test_content_words_are_found_in_any_script(text: str, words: set[str]) -> None:
    assert content_words(text) == words


def test_a_text_contains_a_turn_if_it_has_four_fifths_of_its_words() -> None:
    turn = content_words("Kiln arrives Friday morning upstairs")
    assert stands_in(turn, content_words("the kiln arrives friday morning"))
    assert not stands_in(turn, content_words("the kiln arrives friday"))


def test_lines_fill_a_budget_until_one_does_not_fit() -> None:
    assert fill_budget([("a", 3), ("b", 4), ("c", 4), ("d", 1)], 10) == ("a\nb", 7)
    assert fill_budget([], 10) == ("", 0)


def test_the_share_of_a_prompt_with_the_same_beginning_is_computed() -> None:
    assert same_beginning("abcd", "abcx") == 0.75
    assert same_beginning("abcd", "abcdef") == 1
    assert same_beginning("abcd", "bcd") == 0


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
def test_a_file_that_is_not_a_conversation_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str, told: str
) -> None:
    write(tmp_path, GARDEN)
    (tmp_path / "wrong.json").write_text(wrong)
    sentence = refusal(tmp_path, capsys)
    assert "wrong.json: " in sentence
    assert told in sentence


def test_a_folder_without_conversations_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        assert folder in refusal(tmp_path / folder, capsys)
    with pytest.raises(SystemExit, match="2"):
        quality.main([])


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one sentence that says why nothing was measured."""
    assert quality.main([str(folder)]) == 2
    told = capsys.readouterr()
    [sentence] = told.err.splitlines()
    assert told.out == ""
    return sentence


# --- words in memory ---


def test_remembered_words_are_scored_with_and_without_a_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert memory_words.main([str(write(tmp_path, KILN, GARDEN)), "--show", "1"]) == 0
    printed = capsys.readouterr().out
    garden, kiln = table(printed, "Answers' words in memory")
    assert (kiln["conversation"], kiln["unasked"], kiln["asked"], kiln["questions"]) == ("kiln", "1.000", "1.000", "2")
    assert (garden["conversation"], garden["asked"], garden["questions"]) == ("garden", "1.000", "1")
    assert "Ada: My sister moved to Turin." in printed
    assert memory_words.main([str(tmp_path / "missing")]) == 2


def test_lines_are_spread_evenly_over_a_budget() -> None:
    lines = [f"line number {number} of ten" for number in range(10)]
    assert memory_words.spread(lines, 10_000) == "\n".join(lines)
    assert memory_words.spread(lines, 20).split("\n")[0] == lines[0]
    assert memory_words.spread(lines, 0) == ""


# --- languages ---


def test_each_language_has_a_reworded_question_for_each_statement() -> None:
    known = languages.read_languages()
    spoken = {"ar", "de", "en", "es", "fr", "hi", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "th", "tr", "zh"}
    assert {language.language for language in known} == spoken
    for language in known:
        assert len(set(language.statements)) == 20
        assert {asked.statement for asked in language.questions} == set(range(20))
        assert len(set(language.small_talk)) == 10
        for asked in language.questions:
            assert asked.q not in language.statements[asked.statement]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("in_this_process")
def test_languages_are_scored_for_one_person_each_and_for_one_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"statements": ["The kiln arrives on Friday.", "My sisters live in Turin."], "small_talk": ["Good morning!"]}
    known = said | {"language": "en", "questions": [{"q": "which sister?", "statement": 1}]}
    lost = said | {"language": "xx", "questions": [*known["questions"], {"q": "who sold the piano?", "statement": 0}]}
    for spoken in (known, lost):
        (tmp_path / f"{spoken['language']}.json").write_text(json.dumps(spoken))
    monkeypatch.setattr(languages, "FOLDER", tmp_path)
    monkeypatch.setattr(languages, "settle", lambda: None)
    assert languages.main(["--missed"]) == 0
    printed = capsys.readouterr().out
    rows = table(printed, "Search by words in each language")
    assert [(row["language"], row["recall@3 alone"], row["questions"]) for row in rows] == [
        ("en", "1.00", "1"),
        ("xx", "0.50", "2"),
        ("mean", "0.67", "3"),
    ]
    assert "- xx: who sold the piano?" in printed


def test_memory_tokens_are_counted_by_purpose_with_the_part_repeated_from_the_previous_call() -> None:
    ledger = memory_tokens.Ledger()
    for asked in ("Hello there", "Hello again"):
        messages = [{"content": "Say what to look up. " * 20}, {"content": f'Message to answer: "{asked}"'}]
        ledger.add({"messages": messages, "response_format": {"json_schema": {"name": "recall_query", "schema": {}}}})
    ledger.add({"input": ["kilns", "glazes"]})
    queries, vectors = ledger.of("recall-query"), ledger.of("embedding")
    assert (queries.calls, vectors.calls) == (2, 1)
    assert queries.input_tokens / 2 > queries.repeated_tokens > queries.input_tokens / 2 * 0.9
    assert queries.output_tokens > 0 == vectors.output_tokens and vectors.input_tokens > 0


def test_a_conversation_is_split_into_rounds(tmp_path: Path) -> None:
    [conversation] = read_folder(write(tmp_path, KILN))
    rounds = [turn for session in conversation.sessions for turn in memory_tokens.rounds_of(conversation, session)]
    assert [message for turn in rounds for message in turn] == [
        message for session in conversation.sessions for message in conversation.messages(session)
    ]
    assert all(turn[0]["role"] == "user" for turn in rounds[1:])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="It reads /proc.")
def test_memory_and_cpu_time_include_child_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "SECONDS", 0.5)
    busy = "import sys; data = bytearray(b'x' * 50_000_000)\nwhile True: sys.argv"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}, 'manage.py run'])"
    with subprocess.Popen([sys.executable, "-c", parent]) as process, subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            (tmp_path / "postgres").mkdir()
            (tmp_path / "postgres/postmaster.pid").write_text(f"{process.pid}\n{tmp_path}\n")
            wait_until(lambda: lean.measure(process.pid, tmp_path).get("supervisor", {}).get("pss", 0) > 50)
            figures = lean.measure(process.pid, tmp_path)
            assert sum(figure["processes"] for figure in figures.values()) == 2
            assert 50 < figures["supervisor"]["cpu"] <= 1_300  # the process is measured while it runs
        finally:
            for child in (one for one in lean.processes_of(process.pid, tmp_path) if one.pid != process.pid):
                os.kill(child.pid, signal.SIGKILL)
            process.kill()
            stranger.kill()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(sys.platform != "linux", reason="It reads /proc.")
def test_each_kind_of_request_is_made_before_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres/postmaster.pid").write_text(f"{os.getppid()}\n{tmp_path}\n")
    key = ApiKey.objects.issue("application", scope=ApiKey.Scope.ADMIN)[1]
    with live_site() as url:
        figures = lives._take_part(int(url.rpartition(":")[2]), key, os.getpid(), tmp_path, range(2))
    assert Message.objects.count() == 2
    assert figures.pop("requests") == 10 and figures.pop("per second") > 0
    assert sum(figures.values()) > 50  # MB


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_each_kind_of_request_is_timed_at_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    key = ApiKey.objects.issue("application", scope=ApiKey.Scope.ADMIN)[1]
    [conversation] = [one for one in read_folder(CONVERSATIONS) if one.id == growth.CONVERSATION]
    with live_site() as url, closing(Http(port := int(url.rpartition(":")[2]), key)) as http:
        store(http, conversation)
        people = [growth._with_turns(conversation, turns) for turns in (30, 800)]
        growth._add_people(conversation, 5)
        times = growth._measured(port, key, people, 2)
    sizes = [Message.objects.filter(user__user_id=person.conversation.id).count() for person in people]
    assert 30 <= sizes[0] < 90 and sizes[1] == 2 * 400 + 4
    assert {what: len(each) for what, each in times[1].items()} == dict.fromkeys(KINDS, 2)
    growth._print("turns", [30, 800], times, {})
    assert [row["what"] for row in table(capsys.readouterr().out, "Durations by the number of turns")] == list(KINDS)


def test_a_walk_records_the_functions_of_the_apps_that_run() -> None:
    seen = walk.Walk()
    with seen.recording():
        estimate_tokens("The kiln is warm.")
    assert "estimate_tokens" in seen.functions.pop("sessions_app/text/length.py")
    assert not [path for path in seen.functions if not path.startswith(walk.APPS)]


def test_each_way_of_the_quickstart_has_code_that_shows_memory() -> None:
    for way in quickstart.WAYS:
        language, code = way.code()
        assert language in ("python", "sh", "ts")
        told = (quickstart.FACT, quickstart.QUESTION) if way.asks_model else (way.shows.removeprefix("- user: "),)
        assert all(text in code for text in told)


@pytest.mark.slow
def test_the_quickstart_measures_until_the_line_is_printed(tmp_path: Path) -> None:
    code = "import time; print('One', flush=True); print('It is Two.', flush=True); time.sleep(1)"
    command = [sys.executable, "-c", code]
    started = time.monotonic()
    seconds = quickstart.seconds_until("Two", command, tmp_path, {})
    assert time.monotonic() - started - seconds >= 1
    with pytest.raises(RuntimeError, match="Three"):
        quickstart.seconds_until("Three", command, tmp_path, {})


@pytest.mark.django_db
def test_the_worst_lateness_and_the_most_open_jobs_are_kept() -> None:
    now = timezone.now()
    ended = {"status": "completed", "queued_at": now - timedelta(minutes=9), "finished_at": now - timedelta(minutes=4)}
    Job.objects.create(process=TASK, task="index_words", requested_by="test", **ended)
    Job.objects.create(process="embed_all", requested_by="test")
    seen = Seen()
    seen.look(5.0)
    Job.objects.open().delete()
    Job.objects.update(finished_at=now)
    seen.look(10.0)
    assert 175 < seen.late["index_words"] < 200  # it runs each minute
    assert seen.jobs == {"embed_all": 1} and seen.first_moment is None
