"""The tutorial, in a reader's order."""

import builtins
import json
import re
import sys
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from memoryproject import conf
from tests.support.first_steps import blocks_in, commands_of, curl, printed
from tests.support.jobs import work_off
from tests.support.openai_server import Handler, OpenAIServer


def answer_from_memory(handler: Handler, body: dict[str, Any]) -> None:
    """Answer the tutorial's question if the request has the answer."""
    if "When does" not in body["messages"][-1]["content"]:
        return handler.complete("Noted.")
    knows = "arrives on 14 March" in json.dumps(body["messages"])
    return handler.complete("On 14 March." if knows else "I don't know.")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the reader types at prompts, in order."""
    lines: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda prompt="": lines.pop(0))
    return lines


class Reader:
    """Follows the page block by block."""

    def __init__(self, site: str, typed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._site, self._typed, self._monkeypatch = site, typed, monkeypatch
        self._key = self._bot = ""
        self.responses: list[Any] = []
        self.printed = ""

    def follow(self, language: str, text: str) -> None:
        if language == "python":
            self._bot = text
        elif language == "console":
            self._talk(text)
        elif language == "sh":
            for command in commands_of(text):
                self._run(command)

    def _talk(self, text: str) -> None:
        command, dialog = text.split("\n", 1)
        self._monkeypatch.setattr(sys, "argv", command.removeprefix("$ .venv/bin/python ").split())
        self._typed[:] = re.findall(r"^You: ?(.*)$", dialog, re.M)
        assert printed(self._bot, self._site, self._key) == "".join(re.findall(r"^Bot: .*\n", dialog, re.M))
        assert self._typed == []

    def _run(self, command: list[str]) -> None:
        if command[0] == "curl":
            self.responses.append(curl(command, self._site, self._key))
            work_off()
        elif command[1] == "manage.py":
            self._typed[:] = command[-1:]  # `erase_user` asks for the user_id again
            call_command(*command[2:], stdout=(stdout := StringIO()))
            self.printed = stdout.getvalue()
            self._key = self._key or self.printed.splitlines()[-1]


def _without_date(context: str) -> list[str]:
    return [line for line in context.splitlines() if not re.fullmatch(r"\d+ \w+ \d{4}:", line)]


def _numbers_masked(output: str) -> set[str]:
    """Return the lines of the output of `erase_user`, but not the dialog and lines that are left out."""
    lines = [line for line in output.splitlines() if not line.startswith(("Type", "…"))]
    return {re.sub(r"[0-9a-f]{8}-.*|\d+", "N", line) for line in lines}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_bot_of_the_tutorial_remembers_and_forgets(
    site: str, upstream: OpenAIServer, typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.always(answer_from_memory)
    reader = Reader(site, typed, monkeypatch)
    for language, text in blocks_in("tutorial.md"):
        reader.follow(language, text)
    context, accepted, moments = reader.responses
    assert "The blue kiln arrives on 14 March." in context["context"]
    assert accepted["status"] == "accepted"
    assert ["kiln" in moment["summary"] for moment in moments["moments"]] == [True]
    shown_context, shown_erasure = (text for language, text in blocks_in("tutorial.md") if not language)
    by_meaning = "- assistant: On 14 March.\n"  # the test has no embeddings server
    assert _without_date(context["context"]) == _without_date(shown_context.replace(by_meaning, ""))
    assert _numbers_masked(shown_erasure) <= _numbers_masked(reader.printed)
    told = "".join(text for language, text in blocks_in("tutorial.md") if language == "json")
    assert json.dumps(moments["moments"][0]["summary"]) in told


def test_settings_of_the_tutorial_exist() -> None:
    [env] = [text for language, text in blocks_in("tutorial.md") if language == "env"]
    chat = conf.load(dict(line.split("=", 1) for line in env.splitlines())).chat
    assert chat.upstream_base_url == "https://api.openai.com/v1"
    assert chat.upstream_api_key.get_secret_value()
