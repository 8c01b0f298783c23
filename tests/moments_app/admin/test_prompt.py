"""The editor of prompts."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import PromptResource
from sessions_app.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


class TestPrompt:
    """The editor of prompts and its versions."""

    def add(self, client: Client, prompt: PromptResource, **data: str) -> Any:
        url = reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk])
        return client.post(url, {"content": "A new text.", "note": "try", **data}, follow=True)

    def test_saving_makes_a_version_that_is_not_in_force_yet(self, root: Client, prompt: PromptResource) -> None:
        answer = self.add(root, prompt, content="Line one.\r\nLine two.\r\n")
        version = prompt.versions.latest("number")
        assert (version.content, version.note) == ("Line one.\nLine two.\n", "try")
        assert version.created_by == "operator:root"
        prompt.refresh_from_db()
        assert prompt.active_version != version
        assert "Line one." in answer.content.decode()

    def test_a_version_is_put_in_force_and_rolled_back_with_an_event_each(
        self, root: Client, prompt: PromptResource
    ) -> None:
        self.add(root, prompt, activate="")
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.content == "A new text."
        back = reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 1])
        assert root.get(back).status_code == 405
        assert "Version 1 is in force." in root.post(back, follow=True).content.decode()
        prompt.refresh_from_db()
        assert prompt.active_version.number == 1
        events = Event.objects.filter(type="prompt_activated").order_by("id")
        assert [(event.actor, event.payload["version"]) for event in events] == [
            ("operator:root", 2),
            ("operator:root", 1),
        ]

    @pytest.mark.parametrize("content", ["", "  \n ", "x" * 100_001, "a\0b"])
    def test_a_text_that_is_none_is_refused_by_name(self, root: Client, prompt: PromptResource, content: str) -> None:
        assert "content: " in self.add(root, prompt, content=content).content.decode()
        assert prompt.versions.count() == 1

    def test_an_unknown_version_is_not_found(self, root: Client, prompt: PromptResource) -> None:
        assert root.post(reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 99])).status_code == 404
