"""The Python client's classes for frameworks, used by the frameworks themselves."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import ApiKey
from tests.support.blocking_client import PACKAGE
from tests.support.first_steps import python_in
from tests.support.live import live_site
from tests.support.openai_server import OpenAIServer, content

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif("FRAMEWORKS_PYTHON" not in os.environ, reason="`make frameworks` installs them"),
]
AGENTS, OTHERS = 2, range(3, 6)  # the code blocks of the page
HERE = Path(__file__).parent


@pytest.fixture
def key(transactional_db: None) -> str:
    return ApiKey.objects.issue("application", scope=ApiKey.Scope.ADMIN)[1]


@pytest.fixture
def site(transactional_db: None) -> Iterator[str]:
    with live_site() as url:
        yield url


def ran(*arguments: str, folder: Path = HERE, **variables: str) -> str:
    """Return what the Python with the frameworks prints."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{PACKAGE.parents[1]}:{HERE}", **variables}
    command = [str(Path(os.environ["FRAMEWORKS_PYTHON"]).absolute()), *arguments]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_classes_work_in_their_frameworks(site: str, key: str) -> None:
    assert ran("in_frameworks.py", site, key) == "All checks passed.\n"


def test_the_store_passes_langgraphs_own_tests(site: str, key: str) -> None:
    """Except those of vectors by a function of the test, of the in-memory store's internals and of other classes."""
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


@pytest.mark.parametrize("number", OTHERS)
def test_the_code_in_the_docs_runs(site: str, key: str, number: int) -> None:
    code = python_in("frameworks.md")[number].replace("http://localhost:8000", site)
    assert "I restore kilns in Turin." in ran("-c", code, MEMORY_KEY=key)
