"""The files of the image and its containers name settings, commands and roles that exist."""

import io
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command, get_commands

from memoryproject import conf, embeddings
from memoryproject.settings import CONF

ROOT = Path(settings.BASE_DIR)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "database"}


def test_each_container_has_known_settings_and_a_known_command() -> None:
    known = {name for name, *_ in conf.variables(type(CONF))}
    for service in OURS.values():
        assert service["environment"].keys() <= known
        program, *arguments = service.get("command", ["memory-platform", "check"])
        assert program == "memory-platform" and arguments[0] in get_commands()
    assert set(re.findall(r"ENV .*?(DATA_DIR)=", DOCKERFILE)) <= known


def test_the_image_serves_with_our_configuration_and_not_as_root() -> None:
    served = re.search(r'"--config", "python:([\w.]+)", .*, "([\w.]+)"\]', DOCKERFILE)
    assert served and all(find_spec(module) for module in served.groups())
    assert re.findall(r"^USER (.*)", DOCKERFILE, re.M) == ["memory"]
    assert DOCKERFILE.index("USER") < DOCKERFILE.index("\nCMD")


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
    own = {"web": {"WEB_DATABASE_PASSWORD"}, "worker": {"WORKER_DATABASE_PASSWORD"}, "embeddings": set()}
    told = set(re.findall(r"\b\w*DATABASE_PASSWORD", str(OURS[service]["environment"])))
    assert told == own.get(service, {"DATABASE_PASSWORD"})


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
