"""The first code in docs/chat.md, and its code for frameworks, unchanged."""

import json
import os
import subprocess

import pytest

from sessions_app.models import Message
from tests.support.chat import transcript
from tests.support.first_steps import printed, python_in
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_first_steps_of_the_chat_page_work(site: str, key: str, upstream: OpenAIServer) -> None:
    chat, responses = python_in("chat.md")
    assert printed(chat, site, key) == "Noted.\n"
    assert transcript("nora", "friday") == [("user", "Where do I restore kilns?"), ("assistant", "Noted.")]
    Message.objects.all().delete()
    assert printed(responses, site, key) == "Noted.\n"
    assert "I restore kilns in Turin." in json.dumps(upstream.requests[-1])


@pytest.mark.slow
@pytest.mark.skipif("FRAMEWORKS_PYTHON" not in os.environ, reason="`make frameworks` installs them")
@pytest.mark.parametrize("number", range(2))
def test_the_code_of_each_framework_page_gives_it_memory(
    site: str, key: str, upstream: OpenAIServer, number: int
) -> None:
    code = python_in("frameworks.md")[number].replace("http://localhost:8000", site)
    done = subprocess.run(
        [os.environ["FRAMEWORKS_PYTHON"], "-c", code],
        env={"PATH": os.environ["PATH"], "MEMORY_KEY": key},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "Noted.\n", done.stderr
    assert "I restore kilns in Turin." in json.dumps(upstream.requests[-1]["input"])
    assert len(transcript("nora", "friday")) == 4
