"""The TypeScript client, compiled with strict checks and used with a running site."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.conf import ChatSettings
from sessions_app.models import ApiKey
from tests.support.chat import transcript
from tests.support.first_steps import DOCS
from tests.support.live import live_site
from tests.support.openai_server import OpenAIServer, calls_tool, content, streamed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif("TYPESCRIPT_CLIENT" not in os.environ, reason="`make typescript` builds it"),
]


def run(*command: str, site: str = "", key: str = "", **more: str) -> str:
    told = {"PATH": os.environ["PATH"], "MEMORY_URL": site, "MEMORY_KEY": key, **more}
    done = subprocess.run(command, cwd=os.environ["TYPESCRIPT_CLIENT"], env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page: str) -> list[str]:
    return re.findall(r"^```ts\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def noted(handler: Any, body: dict[str, Any]) -> None:
    """Answer "Noted.", streamed or whole as requested, after a tool call if the request has tools."""
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        calls_tool("look", '{"at": "hives"}')(handler, body)
    else:
        (streamed("No", "ted.") if body.get("stream") else content("Noted."))(handler, body)


def test_the_client_and_the_code_in_the_docs_compile_and_work() -> None:
    [code] = blocks("clients.md")
    key = ApiKey.objects.issue("application")[1]
    with live_site() as site:
        page = Path(os.environ["TYPESCRIPT_CLIENT"], "test/page.ts")
        page.write_text(code.replace("http://localhost:8000", site))
        run("npm", "run", "--silent", "check")
        assert run("node", "build/use.js", site=site, key=key) == "All checks passed.\n"
        assert "I restore kilns in Turin." in run("node", "build/page.js", site=site, key=key)


def test_models_of_the_ai_sdk_have_memory(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPOOL_DIR, key = tmp_path / "spool", ApiKey.objects.issue("application")[1]
    with OpenAIServer() as model, live_site() as site:
        model.always(noted)
        settings.CHAT = ChatSettings(
            upstream_base_url=model.base_url,
            upstream_api_key=SecretStr("x"),
            memory_timeout_seconds=30,
        )
        monkeypatch.setattr("moments_app.interfaces.chat.rounds.STORE_SECONDS", 30)
        for number, code in enumerate(blocks("frameworks.md")):
            page = Path(os.environ["TYPESCRIPT_CLIENT"], f"test/page{number}.ts")
            page.write_text(code.replace("http://localhost:8000", site))
        run("npm", "run", "--silent", "check")
        told = {"site": site, "key": key, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-x"}
        for number, session in enumerate(("friday", "monday")):
            assert run("node", f"build/page{number}.js", **told).strip() == "Noted."
            assert "I restore kilns in Turin." in json.dumps(model.requests[-1])
            assert len(transcript("nora", session)) == 4
        assert run("node", "build/vercel.js", **told) == "All checks passed.\n"
