"""What docs/chat.md begins with, as it stands there."""

import json

import pytest

from sessions_app.models import Message
from tests.support.chat import transcript
from tests.support.first_steps import printed, python_in
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_first_steps_of_the_chat_page_run_and_are_remembered(site: str, key: str, upstream: OpenAIServer) -> None:
    chat, responses = python_in("chat.md")
    assert printed(chat, site, key) == "Noted.\n"
    assert transcript("nora", "friday") == [("user", "Where do I restore kilns?"), ("assistant", "Noted.")]
    Message.objects.all().delete()
    assert printed(responses, site, key) == "Noted.\n"
    assert "I restore kilns in Turin." in json.dumps(upstream.requests[-1])
