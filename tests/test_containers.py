"""The files of the image and its containers name settings, commands and roles that exist."""

import io
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command, get_commands

from memoryproject import conf, embeddings
from memoryproject.management.commands.run import Command as Run
from memoryproject.settings import CONF

ROOT = Path(settings.BASE_DIR)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "database"}


def test_each_container_has_known_settings_and_a_known_command() -> None:
    known = {name for name, *_ in conf.variables(type(CONF))}
    for service in OURS.values():
        assert set(service["environment"]) | (set(_secrets(service)) - {"postgres_password"}) <= known
        program, *arguments = service["command"]
        assert program == "gunicorn" or (program == "memory-platform" and arguments[0] in get_commands())
    assert set(re.findall(r"ENV .*?(DATA_DIR)=", DOCKERFILE)) <= known


def test_containers_that_call_the_model_get_its_key() -> None:
    with_key = {name for name, service in OURS.items() if "ENGINE__API_KEY" in _secrets(service)}
    assert with_key == {"migrate", "web", "worker"}  # commands run in `migrate`


def test_the_web_container_serves_with_our_configuration() -> None:
    _, _, configuration, _, _, application = OURS["web"]["command"]
    assert find_spec(configuration.removeprefix("python:")) and find_spec(application)


@pytest.mark.slow
@pytest.mark.parametrize("service", ["web", "embeddings"])
@pytest.mark.parametrize("status", [200, 503])
def test_a_health_check_succeeds_only_if_the_server_is_healthy(
    service: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

    *_, code = OURS[service]["healthcheck"]["test"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # refuses connections
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = re.sub(r"(?<=127\.0\.0\.1:)\d+", str(server.server_port), code)
        checked = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        server.shutdown()
    assert (checked.returncode == 0) == (status == 200), checked.stderr


def test_a_container_without_a_command_runs_everything_and_not_as_root() -> None:
    [told] = re.findall(r"^CMD (.*)", DOCKERFILE, re.M)
    program, command, *arguments = json.loads(told)
    assert (program, command) == ("memory-platform", "run")
    assert vars(Run().create_parser(program, command).parse_args(arguments))["host"] == "0.0.0.0"
    assert re.findall(r"^USER (.*)", DOCKERFILE, re.M) == ["10001"]
    assert DOCKERFILE.index("USER") < DOCKERFILE.index("\nENTRYPOINT")


def test_each_optional_package_of_the_image_exists() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = [*re.findall(r'^ARG PACKAGES="(.*)"', DOCKERFILE, re.M), OURS["web"]["build"]["args"]["PACKAGES"]]
    assert {name for listed in packages for name in listed.split(",")} == {"embedded", "embeddings"} <= optional.keys()


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_each_container_has_few_rights_and_limited_resources(service: str) -> None:
    found = COMPOSE["services"][service]
    assert (found["read_only"], found["cap_drop"], found["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    assert "/tmp" in found["tmpfs"] and {"mem_limit", "cpus", "pids_limit"} <= found.keys()
    assert not {"privileged", "cap_add", "network_mode", "pid"} & found.keys()


def test_no_secret_is_a_variable() -> None:
    secret = {name for name, _, field in conf.variables() if "Secret" in str(field.annotation)} | {"DATABASE_URL"}
    assert not secret & {name for service in OURS.values() for name in service["environment"]}
    assert not re.search(r"\$\{\w*(KEY|PASSWORD|SECRET)", (ROOT / "compose.yaml").read_text())


def test_the_secrets_of_the_containers_are_created_with_passwords_that_the_database_gets(tmp_path: Path) -> None:
    subprocess.run([ROOT / "deploy/secrets.sh"], cwd=tmp_path, check=True)
    folder = tmp_path / "secrets"
    assert folder.stat().st_mode & 0o777 == 0o700  # another user can't open it
    assert {path.name for path in folder.iterdir()} == COMPOSE["secrets"].keys()
    assert all((tmp_path / secret["file"]).stat().st_mode & 0o777 == 0o644 for secret in COMPOSE["secrets"].values())
    (folder / "postgres_password").unlink()  # only for PostgreSQL
    found = conf.load({"SECRETS_DIR": str(folder)})
    urls = [urlsplit(url) for url in (found.database_url, found.web_database_url, found.worker_database_url)]
    assert [url.username for url in urls] == ["memory", "memory_web_login", "memory_worker_login"]

    (tmp_path / "psql").write_text('#!/bin/sh\nprintf "%s\\n" "$@"')
    (tmp_path / "psql").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECRETS_DIR": str(folder)}
    script = ROOT / "deploy/database.sh"
    told = subprocess.run([script], env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.partition("=")[2] for line in told if "_password=" in line] == [url.password for url in urls]
    assert subprocess.run([ROOT / "deploy/secrets.sh"], cwd=tmp_path, capture_output=True).returncode != 0


def _secrets(service: dict[str, Any]) -> dict[str, str]:
    """Return the secrets of a container: the name of each file, and where it comes from."""
    listed = [{"source": one, "target": one} if isinstance(one, str) else one for one in service["secrets"]]
    return {one["target"]: one["source"] for one in listed}


def test_the_postgresql_client_of_the_image_can_back_up_the_database() -> None:
    client = re.search(r"postgresql-client-(\d+)", DOCKERFILE)
    server = re.search(r":pg(\d+)$", COMPOSE["services"]["database"]["image"])
    assert client and server and int(client[1]) >= int(server[1])


def test_exactly_the_sources_of_the_wheel_are_copied() -> None:
    copied = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    assert all((ROOT / name).exists() for name in copied)
    described = (ROOT / "pyproject.toml").read_text() + (ROOT / "setup.py").read_text()
    packages = {"memoryproject", "sessions_app", "moments_app", "memory_extras", "templates", "clients/python"}
    assert packages < set(copied) and all(name in described for name in packages)


@pytest.mark.parametrize("service", OURS)
def test_each_container_gets_only_its_database_password(service: str) -> None:
    own = {"web": {"WEB_DATABASE_URL"}, "worker": {"WORKER_DATABASE_URL"}, "embeddings": set()}
    told = {source for source in _secrets(OURS[service]).values() if "DATABASE_URL" in source}
    assert told == own.get(service, {"DATABASE_URL"})


def test_the_embeddings_container_is_the_endpoint_of_the_others() -> None:
    lines = (ROOT / "deploy/embeddings.env").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    found = conf.load(told).embedding
    assert (found.base_url, found.model) == ("http://embeddings:8001/v1", embeddings.PACKAGE)
    assert found.dimensions == embeddings.DIMENSIONS


def test_the_database_is_created_with_the_roles_of_the_command() -> None:
    out = io.StringIO()
    call_command("create_roles", "memory", web="memory_web_login", worker="memory_worker_login", stdout=out)
    assert out.getvalue().strip() in (ROOT / "deploy/database.sh").read_text()
