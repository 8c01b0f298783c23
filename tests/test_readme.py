"""The first steps in README.md, in their order."""

from io import StringIO

import pytest

from memoryproject.management.commands.run import Command
from sessions_app.models import ApiKey
from tests.support.first_steps import blocks_in, commands_of, curl, printed, python_in
from tests.support.live import live_site
from tests.support.pictures import password_in

pytestmark = pytest.mark.django_db(transaction=True)

README = "../README.md"


def test_the_first_run_ends_with_the_lines_of_the_readme() -> None:
    printed = StringIO()
    Command(stdout=printed)._say_where("http://127.0.0.1:8000", "…")
    assert [printed.getvalue().lstrip()] == [text for language, text in blocks_in(README) if not language]
    assert password_in(printed.getvalue()) == "…"  # `make pictures` logs in with it


def test_the_first_memory_of_the_readme_is_in_the_context_of_another_session() -> None:
    key = ApiKey.objects.issue("my-app")[1]
    commands = [command for language, text in blocks_in(README) if language == "sh" for command in commands_of(text)]
    [python] = python_in(README)
    with live_site() as site:
        posted, context = (curl(command, site, key) for command in commands if command[0] == "curl")
        from_python = printed(python, site, key)
    assert [message["created"] for message in posted["messages"]] == [True]
    assert "- user: I teach the cello in Oslo." in context["context"]
    assert "- user: I keep bees behind the house." in from_python
