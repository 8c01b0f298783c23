"""The hooks of coding assistants, run as the assistants run them, with a running site."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory_platform.client import Memory
from sessions_app.models import ApiKey, Message, UserProfile
from tests.support.live import live_site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PLUGIN = Path(__file__).parents[2] / "clients/coding_assistants"
SECONDS = 4.0  # until the hook gives up
STARTING = 15.0  # for Python to start on a busy machine

Event = dict[str, Any]
Ran = subprocess.CompletedProcess[str]


def claude(name: str, session: str = "s1", turn: str = "t1", **more: str) -> Event:
    place = {"cwd": "/home/ada/kiln", "transcript_path": "/home/ada/t.jsonl", "permission_mode": "default"}
    return {"session_id": session, "prompt_id": turn, "hook_event_name": name, **place, **more}


def codex(name: str, session: str = "s1", turn: str = "t1", **more: str) -> Event:
    place = {"cwd": "/home/ada/kiln", "transcript_path": None, "permission_mode": "default", "model": "gpt-5"}
    return {"session_id": session, "turn_id": turn, "hook_event_name": name, **place, **more}


def cursor(name: str, session: str = "s1", turn: str = "t1", **more: str) -> Event:
    names = {"UserPromptSubmit": "beforeSubmitPrompt", "Stop": "afterAgentResponse"}
    if "last_assistant_message" in more:
        more["text"] = more.pop("last_assistant_message")
    place = {"cursor_version": "3.24.18", "workspace_roots": ["/home/ada/kiln"], "attachments": []}
    return {"conversation_id": session, "generation_id": turn, "hook_event_name": names[name], **place, **more}


ASSISTANTS = pytest.mark.parametrize("event", [claude, codex, cursor])


def prompt(text: str, event: Callable[..., Event] = claude, **more: str) -> Event:
    return event("UserPromptSubmit", prompt=text, **more)


def answer(text: str, event: Callable[..., Event] = claude, **more: str) -> Event:
    return event("Stop", last_assistant_message=text, **more)


@pytest.fixture
def key(transactional_db: None) -> str:
    return ApiKey.objects.issue("application", scope=ApiKey.Scope.WRITE)[1]


@pytest.fixture
def hook(key: str) -> Iterator[Callable[..., Ran]]:
    """A function that runs the hook for an event, by default with the site."""
    with live_site() as url:

        def run(event: Event | str, **variables: str) -> Ran:
            given = {"MEMORY_URL": url, "MEMORY_API_KEY": key, "MEMORY_USER": "ada"} | variables
            return ran(event, given)

        run.url = url  # type: ignore[attr-defined]
        yield run


def ran(event: Event | str, variables: dict[str, str]) -> Ran:
    """Run the hook by a Python without packages."""
    command = [sys.executable, "-I", "-S", str(PLUGIN / "hooks/memory_hook.py")]
    said = event if isinstance(event, str) else json.dumps(event)
    return subprocess.run(command, input=said, env=variables, capture_output=True, text=True, timeout=60)


def remembered(hook: Callable[..., Ran], key: str, text: str, session_id: str = "earlier") -> None:
    with Memory("ada", url=hook.url, key=key) as memory:  # type: ignore[attr-defined]
        memory.add(text, session_id=session_id)


def shown(done: Ran) -> str:
    """Return the memory that the hook gave the assistant."""
    assert done.returncode == 0 and done.stderr == "", done.stderr
    if not done.stdout:
        return ""
    told = json.loads(done.stdout)
    if "additional_context" in told:
        assert told["continue"] is True
        return str(told["additional_context"])
    assert told["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    return str(told["hookSpecificOutput"]["additionalContext"])


def stored(session: str = "s1") -> list[tuple[str, str]]:
    turns = Message.objects.turns().filter(session__session_id=session).order_by("sequence")
    return list(turns.values_list("role", "content"))


# --- memory ---


@ASSISTANTS
def test_a_prompt_gets_what_an_earlier_session_said(
    hook: Callable[..., Ran], key: str, event: Callable[..., Event]
) -> None:
    remembered(hook, key, "The kiln controller speaks Modbus on port 5020.")
    told = shown(hook(prompt("Which port does the kiln controller use?", event)))
    assert "user: The kiln controller speaks Modbus on port 5020." in told and "not instructions" in told


@ASSISTANTS
def test_the_prompt_and_the_answer_are_stored_once(hook: Callable[..., Ran], event: Callable[..., Event]) -> None:
    for _ in range(2):
        assert shown(hook(prompt("Rename the kiln class.", event))) == ""
        assert hook(answer("Renamed.", event)).stdout == ""
    assert stored() == [("user", "Rename the kiln class."), ("assistant", "Renamed.")]


def test_the_same_words_in_two_turns_are_stored_twice(hook: Callable[..., Ran]) -> None:
    for turn in ("t1", "t2"):
        hook(prompt("Continue.", turn=turn))
    assert stored() == [("user", "Continue.")] * 2


def test_a_prompt_that_nothing_fits_gets_nothing(hook: Callable[..., Ran], key: str) -> None:
    remembered(hook, key, "I teach the cello in Oslo.")
    assert shown(hook(prompt("Fix the failing test in tests/test_auth.py"))) == ""


def test_the_sessions_own_turns_are_not_repeated(hook: Callable[..., Ran], key: str) -> None:
    remembered(hook, key, "I use that port for the kiln of the school, too.")
    hook(prompt("The kiln controller speaks Modbus on port 5020."))
    told = shown(hook(prompt("Which port does the kiln controller use?", turn="t2")))
    assert "kiln of the school" in told and "5020" not in told


def test_a_users_key_needs_no_user(hook: Callable[..., Ran], bo: UserProfile) -> None:
    own = ApiKey.objects.issue("laptop", user=bo)[1]
    assert hook(prompt("Rename the kiln class."), MEMORY_API_KEY=own, MEMORY_USER="").stderr == ""
    assert Message.objects.get().user == bo


@pytest.mark.parametrize(
    "event",
    [
        prompt("<task-notification>", source="system"),
        prompt(" "),
        answer(""),
        claude("SubagentStop", last_assistant_message="Done."),
    ],
)
def test_other_events_are_ignored(hook: Callable[..., Ran], event: Event) -> None:
    done = hook(event)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not Message.objects.exists()


# --- failures ---


def is_harmless(done: Ran) -> bool:
    """Return whether the hook printed nothing for the assistant, and one line for the log."""
    return done.returncode == 0 and done.stdout == "" and done.stderr.count("\n") == 1


@contextmanager
def server(answers: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Run a server with this handler of POST requests, and yield its URL."""
    handler = type("Handler", (BaseHTTPRequestHandler,), {"do_POST": answers, "log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def fails(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(500)


def speaks_html(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<html>Log in</html>")


def is_silent(_: BaseHTTPRequestHandler) -> None:
    time.sleep(SECONDS + STARTING)


def drips(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, so that no read times out."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(int(SECONDS + STARTING) * 2):
        handler.wfile.write(b" ")
        time.sleep(0.5)


@pytest.mark.parametrize("answers", [fails, speaks_html])
@pytest.mark.parametrize("event", [prompt("Which port?"), answer("5020.")])
def test_a_failing_server_is_harmless(answers: Callable[[BaseHTTPRequestHandler], None], event: Event) -> None:
    with server(answers) as url:
        assert is_harmless(ran(event, {"MEMORY_URL": url, "MEMORY_API_KEY": "mem_x"}))


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("answers", [is_silent, drips])
def test_a_slow_server_does_not_block_the_assistant(answers: Callable[[BaseHTTPRequestHandler], None]) -> None:
    with server(answers) as url:
        started = time.monotonic()
        done = ran(prompt("Which port?"), {"MEMORY_URL": url, "MEMORY_API_KEY": "mem_x"})
        assert is_harmless(done) and time.monotonic() - started < SECONDS + STARTING


def test_a_wrong_key_is_harmless(hook: Callable[..., Ran]) -> None:
    done = hook(prompt("Which port?"), MEMORY_API_KEY="mem_wrong")
    assert is_harmless(done) and "401" in done.stderr


def test_a_missing_server_key_or_event_is_harmless(hook: Callable[..., Ran]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert is_harmless(hook(prompt("Which port?"), MEMORY_URL=f"http://127.0.0.1:{port}"))
    assert is_harmless(hook(prompt("Which port?"), MEMORY_API_KEY=""))
    assert is_harmless(hook("no JSON"))


# --- the plugin ---


def test_every_hook_of_the_plugin_runs_the_program() -> None:
    for name, root in (("hooks.json", "CLAUDE_PLUGIN_ROOT"), ("cursor.json", "CURSOR_PLUGIN_ROOT")):
        groups = json.loads((PLUGIN / "hooks" / name).read_text())["hooks"]
        hooks = [hook for group in groups.values() for one in group for hook in one.get("hooks", [one])]
        assert len(hooks) == 2
        for one in hooks:
            path = one["command"].removeprefix("python3 ").strip('"').replace(f"${{{root}}}", str(PLUGIN))
            assert Path(path).is_file() and one["timeout"] > SECONDS


def test_the_manifests_agree() -> None:
    manifests = [json.loads(path.read_text()) for path in PLUGIN.glob(".*-plugin/plugin.json")]
    assert len(manifests) == 3
    assert len({(one["name"], one["version"], one["description"]) for one in manifests}) == 1
    [listed] = json.loads((PLUGIN.parents[1] / ".claude-plugin/marketplace.json").read_text())["plugins"]
    assert listed["name"] == manifests[0]["name"] and PLUGIN.samefile(PLUGIN.parents[1] / listed["source"])
