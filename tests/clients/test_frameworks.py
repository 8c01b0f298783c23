"""The Python client's classes for frameworks, used by the frameworks themselves."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from memory_platform.client import Memory
from sessions_app.models import Message
from tests.support.blocking_client import PACKAGE
from tests.support.first_steps import python_in
from tests.support.openai_server import OpenAIServer, content, streamed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif("FRAMEWORKS_PYTHON" not in os.environ, reason="`make frameworks` installs them"),
]
AGENTS, OTHERS = 2, range(3, 6)  # the code blocks of the page
HERE = Path(__file__).parent


def ran(*arguments: str, folder: Path = HERE, python: str = "FRAMEWORKS_PYTHON", **variables: str) -> str:
    """Return what the Python with the frameworks prints. An environment variable names its path."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{PACKAGE.parents[1]}:{HERE}", **variables}
    command = [str(Path(os.environ[python]).absolute()), *arguments]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_classes_work_in_their_frameworks(site: str, key: str) -> None:
    assert ran("in_frameworks.py", site, key) == "All checks passed.\n"


def test_the_store_passes_langgraphs_own_tests(site: str, key: str) -> None:
    """Skip tests of embedding functions, of the in-memory store's internals and of other classes."""
    [folder] = Path(os.environ["LANGGRAPH_SOURCES"]).glob("langgraph_checkpoint-*/")
    others = "not vector and not embed_with_path and not async_batch_store and not get_text_at_path"
    asked = ["-q", "-p", "langgraph_own_tests", "-p", "no:cacheprovider", "tests/test_store.py", "-k", others]
    told = ran("-m", "pytest", *asked, folder=folder, MEMORY_URL=site, MEMORY_KEY=key)
    assert " passed" in told


def test_an_agent_continues_its_session_in_another_process(site: str, key: str) -> None:
    code = python_in("frameworks.md")[AGENTS].replace("http://localhost:8000", site)
    with OpenAIServer() as model:
        model.always(content("Noted."))
        given: dict[str, Any] = {"MEMORY_KEY": key, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-x"}
        given["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
        assert ran("-c", code, **given) == "Noted.\n"
        assert ran("-c", code, **given) == "Noted.\n"
        asked = json.dumps(model.requests[-1]["input"])
    assert asked.count("I restore kilns in Turin.") == 2 and asked.count("Noted.") == 1


def test_litellm_calls_have_a_memory(site: str, key: str) -> None:
    with OpenAIServer() as model:
        model.queue(content("Noted."), streamed("No", "ted."))
        model.always(content("Noted."))
        assert ran("in_litellm.py", site, key, **litellm_with(model)) == "All checks passed.\n"
        sent = [json.dumps(request["messages"]) for request in model.requests]
    assert [request.count("I restore kilns in Turin.") for request in sent] == [1, 1, 0, 0, 0, 0]  # once for a question


def test_the_litellm_code_in_the_docs_runs(site: str, key: str) -> None:
    [code] = [block for block in python_in("frameworks.md") if "import litellm" in block]
    with OpenAIServer() as model:
        model.always(content("Noted."))
        given = litellm_with(model) | {"MEMORY_KEY": key}
        code = code.replace("http://localhost:8000", site)
        assert ran("-c", code, **given) == "Noted.\n"
        asked = code.replace("I restore kilns in Turin.", "Where do I restore kilns?").replace("friday", "monday")
        assert ran("-c", asked, **given) == "Noted.\n"
        assert "I restore kilns in Turin." in model.requests[-1]["messages"][0]["content"]


def litellm_with(model: OpenAIServer) -> dict[str, Any]:
    """Return the environment in which LiteLLM calls this model, and nothing else."""
    return {"OPENAI_API_BASE": model.base_url, "OPENAI_API_KEY": "sk-x", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def test_open_webuis_chats_have_a_memory(site: str, key: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"DATA_DIR": str(tmp_path), "WEBUI_SECRET_KEY": "x", "ENABLE_DB_MIGRATIONS": "false"}
    given["DATABASE_URL"] = f"sqlite:///{tmp_path}/webui.db"
    told = ran("in_open_webui.py", site, key, python="OPEN_WEBUI_PYTHON", **given)
    assert told.endswith("All checks passed.\n")


def test_codex_with_the_plugin_has_a_memory(site: str, key: str, tmp_path: Path) -> None:
    with Memory("nora", url=site, key=key) as memory:
        memory.add("The kiln controller speaks Modbus on port 5020.", session_id="friday")
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path), "MODEL_KEY": "sk-x"}
    given |= {"MEMORY_URL": site, "MEMORY_API_KEY": key, "MEMORY_USER": "nora"}
    codex = str(Path(os.environ["CODEX"]).absolute())

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [codex, *arguments], cwd=tmp_path, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("plugin", "marketplace", "add", str(PACKAGE.parents[3]))
    run("plugin", "add", "memory@memory-platform")
    with OpenAIServer() as model:
        model.always(streamed("Port 5020."))
        provider = f'{{name="test", base_url="{model.base_url}", wire_api="responses", env_key="MODEL_KEY"}}'
        to_model = ("-m", "test-model", "-c", 'model_provider="test"', "-c", f"model_providers.test={provider}")
        unasked = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust")
        for said in ("Which port does the kiln controller use?", "Fix the failing test in tests/test_auth.py"):
            run("exec", *unasked, *to_model, said)
        recalled, unrelated = (json.dumps(request["input"]) for request in model.requests)
    assert "speaks Modbus on port 5020" in recalled and "Modbus" not in unrelated
    turns = Message.objects.turns().filter(session__source="coding-assistant").order_by("pk")
    assert [turn.content for turn in turns][:2] == ["Which port does the kiln controller use?", "Port 5020."]
    assert len(turns) == 4


@pytest.mark.parametrize("number", OTHERS)
def test_the_code_in_the_docs_runs(site: str, key: str, number: int) -> None:
    code = python_in("frameworks.md")[number].replace("http://localhost:8000", site)
    assert "I restore kilns in Turin." in ran("-c", code, MEMORY_KEY=key)
