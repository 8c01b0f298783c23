"""Extras: the core starts without any, and an extra's tables are dropped by a command."""

import json

import httpx2
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection

from memoryproject import conf
from sessions_app.models import ApiKey
from tests.support.folders import migrated_folder
from tests.support.processes import environment, free_port, manage_all, web_at
from tests.support.running import Run
from tests.support.schema import schema

OF_LAB = ("moments_app_probe", "moments_app_prompttrial", "moments_app_trialside")
SCHEMA = "import json; from tests.support.schema import schema; print(json.dumps([*schema().items()]))"
TABLES = "import json; from django.db import connection as c; print(json.dumps(c.introspection.table_names()))"


def is_of_lab(part: str) -> bool:
    return any(table in part for table in OF_LAB)


def is_of_extra(table: str) -> bool:
    return table.startswith("oauth") or is_of_lab(table)


def test_settings_of_an_extra_are_known_only_if_it_is_enabled() -> None:
    assert conf.load({"EXTRAS": "oauth", "OAUTH__OPEN_REGISTRATION": "true"}).oauth.open_registration  # type: ignore[attr-defined]
    assert not hasattr(conf.load({"EXTRAS": ""}), "oauth")
    with pytest.raises(ImproperlyConfigured, match="OAUTH__OPEN_REGISTRATION"):
        conf.load({"OAUTH__OPEN_REGISTRATION": "often"})
    with pytest.raises(ImproperlyConfigured, match=r"EXTRAS: .*unknown extra nothing; available are importers, lab"):
        conf.load({"EXTRAS": "oauth,nothing"})
    with pytest.raises(ImproperlyConfigured, match="OAUTH__SITE: its extra isn't installed; add oauth to EXTRAS"):
        conf.load({"EXTRAS": "", "OAUTH__SITE": "https://memory.example.com"})
    assert conf.load({"EXTRAS": "", "REPLICA_DATABASE_URL": ""}).extras == []  # blank means not set


@pytest.mark.slow(seconds=60)
@pytest.mark.django_db
def test_after_a_command_dropped_the_extras_the_core_starts_and_remembers_and_they_can_be_added_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CommandError):
        call_command("drop_extra", "nothing", "--yes")
    with migrated_folder() as folder:
        site = {"DATA_DIR": str(folder), "DATABASE_URL": ""}
        dropped = manage_all("drop_extra oauth --yes", "drop_extra lab --yes", **site)
        assert dropped.returncode == 0, dropped.stderr
        monkeypatch.setenv("EXTRAS", "")
        left = manage_all("check", "makemigrations --check", "migrate --check", code=TABLES, **site)
        assert left.returncode == 0, left.stderr
        run = Run(folder).serve()
        assert run.answers()
        context = run.stop().partition("In a new conversation, the person asks")[2]
        later = manage_all("migrate", code=SCHEMA, EXTRAS="lab", **site)
    assert run.process.returncode == 0
    assert "38 square metres" in context
    tables = json.loads(left.stdout.splitlines()[-1])
    assert "sessions_app_message" in tables and not [name for name in tables if is_of_extra(name)]
    made = {part: text for part, text in json.loads(later.stdout.splitlines()[-1]) if is_of_lab(part)}
    assert made == {part: text for part, text in schema().items() if is_of_lab(part)}


@pytest.mark.slow(seconds=15)
@pytest.mark.django_db(transaction=True)
def test_the_core_serves_without_extras() -> None:
    key = {"Authorization": f"Bearer {ApiKey.objects.issue('test')[1]}"}
    port = free_port()
    variables = environment(ALLOWED_HOSTS="127.0.0.1", EXTRAS="")
    connection.close()
    with web_at(port, variables) as site:
        turn = {"user_id": "ada", "messages": [{"role": "user", "content": "The kiln is in Turin."}]}
        stored = httpx2.post(f"{site}/api/v1/sessions/s/messages", json=turn, headers=key)
        asked = {"user_id": "ada", "session_id": "s", "query": "kiln"}
        context = httpx2.post(f"{site}/api/v1/memory/context", json=asked, headers=key)
        assert (stored.status_code, context.status_code) == (201, 200), (stored.text, context.text)
        accepts = {"Accept": "application/json, text/event-stream"}
        tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        by_key = httpx2.post(f"{site}/mcp", json=tools, headers=key | accepts | {"X-User-Id": "ada"})
        nobody = httpx2.post(f"{site}/mcp", json=tools, headers=accepts)
        token = httpx2.post(f"{site}/mcp", json=tools, headers=accepts | {"Authorization": "Bearer mem_oauth_x"})
        announced = httpx2.get(f"{site}/.well-known/oauth-protected-resource/mcp")
    assert (by_key.status_code, nobody.status_code, token.status_code) == (200, 401, 401)
    assert nobody.headers["WWW-Authenticate"] == "Bearer" and announced.status_code == 404
