"""Trying a prompt on its page."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from memory_extras.lab.models import Probe
from moments_app.models import EngineCall, MemoryStream, PromptResource
from moments_app.prompts import STREAM_CONSOLIDATION_URI
from sessions_app.models import Event, Session, UserProfile
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import PLANTED, change_url, page
from tests.support.streams import note
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str, prompt: PromptResource) -> str:
    return reverse(f"admin:moments_app_promptresource_{name}", args=[prompt.pk])


class TestTrying:
    """The text in the editor compared with the active version."""

    def ask(self, client: Client, prompt: PromptResource, subject: Any, **data: str) -> Any:
        posted = {"content": "OTHER WORDS", "subject": subject, "step": "try", **data}
        return client.post(url("try", prompt), posted, headers={"HX-Request": "true"})

    @pytest.mark.slow
    def test_both_sides_are_shown_and_nothing_is_stored(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120)
        page(root, change_url(prompt))
        before = everything(but=["moments_app_enginecall", "sessions_app_event"])
        shown = self.ask(root, prompt, session.pk).content.decode()
        assert everything(but=["moments_app_enginecall", "sessions_app_event"]) == before
        assert list(Event.objects.values_list("type", "user_pk")) == [("user_read", ada.pk)]
        assert EngineCall.objects.filter(purpose="try moment-builder").count() == 2
        assert shown.index("Version 1") < shown.index("The text in the editor")
        assert shown.count("They spoke of") >= 2 and "120 tokens" in shown
        assert "<html" not in shown

    @pytest.mark.slow
    def test_without_javascript_the_whole_page_is_returned_with_the_input(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120)
        posted = {"content": "OTHER WORDS", "note": "why", "after": 1, "subject": session.pk, "step": "try"}
        shown = root.post(url("try", prompt), posted).content.decode()
        assert "<html" in shown and "OTHER WORDS</textarea>" in shown and 'value="why"' in shown
        assert "The text in the editor" in shown and f'value="{session.pk}" checked' in shown
        found = root.post(url("try", prompt), posted | {"step": "find", "begins": "nobody"}).content.decode()
        assert "No match." in found and "OTHER WORDS" in found
        assert prompt.versions.count() == 1

    def test_a_saved_text_is_named_by_its_version(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        version = prompt.add_version("OTHER WORDS", created_by="test")
        assert "Version 2" in self.ask(root, prompt, talk(ada, 120).pk).content.decode()
        assert EngineCall.objects.filter(prompt_version=version).exists()

    def test_sessions_are_found_by_the_start_of_an_id(
        self, root: Client, prompt: PromptResource, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
    ) -> None:
        talk(ada, 2, session_id="chat-1")
        talk(bo, 2, session_id="other")
        assert "chat-1" in page(root, url("subjects", prompt), begins="chat")
        assert "other" not in page(root, url("subjects", prompt), begins="chat")
        assert "other" in page(root, url("subjects", prompt), begins="bo")

    def test_a_consolidation_is_tried_on_a_stream(
        self, root: Client, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        prompt = PromptResource.objects.get(uri=STREAM_CONSOLIDATION_URI)
        MemoryStream.objects.ensure_for(talk(ada, 2))
        stream = MemoryStream.objects.get(stream_type="user")
        note(stream, "Likes kilns.")
        assert "text about the person" in page(root, url("subjects", prompt), begins="ada")
        shown = self.ask(root, prompt, stream.pk).content.decode()
        assert "1 observations" in shown and shown.count("Likes kilns.") == 2

    @pytest.mark.slow
    def test_the_probes_of_the_subject_are_run_for_both_texts(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120)
        asked = {"question": "What of the kiln?", "expected": "kiln and glaze", "created_by": "test"}
        probe = Probe.objects.create(user=ada, session=session, **asked)
        shown = self.ask(root, prompt, session.pk).content.decode()
        assert change_url(probe) in shown and shown.count("2 of 2 words") == 2

    @pytest.mark.parametrize(
        ("subject", "told"), [("", "Choose one"), ("x", "Try on: "), ("99999", "no longer exists")]
    )
    def test_an_invalid_subject_is_reported(
        self, root: Client, prompt: PromptResource, model_server: OpenAIServer, subject: str, told: str
    ) -> None:
        assert told in self.ask(root, prompt, subject).content.decode()
        assert not model_server.requests

    def test_the_page_says_that_the_extractive_engine_ignores_prompts(
        self, root: Client, prompt: PromptResource
    ) -> None:
        assert "the built-in extractive engine writes memory and ignores prompts" in page(root, change_url(prompt))

    def test_row_18_a_viewer_cannot_try(self, prompt: PromptResource, ada: UserProfile) -> None:
        session = talk(ada, 120)
        for client in (operator("view_"), operator("change_promptresource", "view_promptresource")):
            assert self.ask(client, prompt, session.pk).status_code == 403
            assert client.get(url("subjects", prompt)).status_code == 403
        assert "Try it" not in page(operator("view_prompt"), change_url(prompt))

    @pytest.mark.slow
    def test_row_18_planted_scripts_stay_text(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120, text=f"{PLANTED} </script>")
        Session.objects.filter(pk=session.pk).update(session_id=PLANTED)
        posted = {"content": PLANTED, "subject": session.pk}
        tried = root.post(url("try", prompt), posted).content.decode()
        assert all("planted" in text and PLANTED not in text for text in (page(root, url("subjects", prompt)), tried))
