"""README's first steps, taken in the order in which a reader takes them."""

import json
import re
import shlex
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from sessions_app.models import ApiKey
from tests.support.live import live_site

pytestmark = pytest.mark.django_db(transaction=True)

README = Path(settings.BASE_DIR) / "README.md"


def commands() -> list[list[str]]:
    """Return the arguments of each `curl` in README."""
    blocks = re.findall(r"^```\n(.*?)^```", README.read_text(), re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("curl ")]


def called(arguments: list[str], site: str, key: str) -> Any:
    """Do what `curl` would do."""
    body, headers, address = None, {}, ""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value.replace("$KEY", key)
        elif argument == "-d":
            body = next(rest).encode()
        else:
            address = argument.replace("localhost:8000", site)
    with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
        return json.load(answer)


def test_who_follows_readme_gets_the_message_back_in_the_context_and_by_the_search() -> None:
    key = ApiKey.objects.issue("my-app")[1]
    with live_site() as site:
        posted, reloaded, context, found = (called(command, site, key) for command in commands())
    assert [message["created"] for message in posted["messages"]] == [True]
    said = reloaded["messages"][0]["content"]
    assert said in str(context["context"])
    assert said in [result["content"] for result in found["results"]]
