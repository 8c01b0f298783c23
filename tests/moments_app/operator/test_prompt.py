"""The editor of prompts."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import PromptResource, PromptVersion
from moments_app.operator.diff import line_diff
from sessions_app.models import Event, UserProfile
from tests.support import openai_server as behave
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str, prompt: PromptResource, *more: Any) -> str:
    return reverse(f"admin:moments_app_promptresource_{name}", args=[prompt.pk, *more])


def add(client: Client, prompt: PromptResource, **data: Any) -> Any:
    newest = prompt.versions.first()
    posted = {"content": "A new text.", "note": "try", "after": newest.number if newest else 0, **data}
    return client.post(url("add_version", prompt), posted, follow=True)


class TestVersions:
    """Saving, activating and rolling back versions."""

    def test_saving_adds_a_version_that_is_not_in_force(self, root: Client, prompt: PromptResource) -> None:
        answer = add(root, prompt, content="Line one.\r\nLine two.\r\n")
        version = prompt.versions.latest("number")
        assert (version.content, version.note) == ("Line one.\nLine two.\n", "try")
        assert version.created_by == "operator:root"
        prompt.refresh_from_db()
        assert prompt.active_version != version
        assert "Line one." in answer.content.decode()

    @pytest.mark.slow
    def test_activating_and_rolling_back_are_recorded(self, root: Client, prompt: PromptResource) -> None:
        add(root, prompt, activate="")
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.content == "A new text."
        assert prompt.active_since and timezone.now() - prompt.active_since < timedelta(minutes=1)
        back = url("activate", prompt, 1)
        assert root.get(back).status_code == 405
        shown = page(root, change_url(prompt))
        assert "Roll back to version 1" in shown and back in shown
        assert "Version 1 is active." in root.post(back, follow=True).content.decode()
        prompt.refresh_from_db()
        assert prompt.active_version.number == 1 and prompt.previous_version and prompt.previous_version.number == 2
        events = Event.objects.filter(type="prompt_activated").order_by("id")
        assert [(event.actor, event.payload["version"]) for event in events] == [
            ("operator:root", 2),
            ("operator:root", 1),
        ]
        told = LogEntry.objects.order_by("id").values_list("change_message", flat=True)
        assert list(told) == ["Saved version 2.", "Activated version 2.", "Activated version 1."]
        assert "Activated version 2." in page(root, change_url(prompt))

    def test_pressing_roll_back_twice_rolls_back_once(self, root: Client, prompt: PromptResource) -> None:
        add(root, prompt, activate="")
        for _ in range(2):
            root.post(url("activate", prompt, 1))
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.number == 1
        assert prompt.previous_version and prompt.previous_version.number == 2

    @pytest.mark.parametrize("content", ["", "  \n ", "x" * 100_001, "a\0b"])
    def test_an_invalid_text_is_rejected_and_other_input_kept(
        self, root: Client, prompt: PromptResource, content: str
    ) -> None:
        answer = add(root, prompt, content=content, note="my reason")
        assert answer.status_code == 400
        assert "Text: " in answer.content.decode() and "my reason" in answer.content.decode()
        assert prompt.versions.count() == 1

    def test_activating_the_active_version_again_is_not_logged(self, root: Client, prompt: PromptResource) -> None:
        prompt.add_version("Two.", created_by="test")
        activate = url("activate", prompt, 2)
        assert "Version 2 is active." in root.post(activate, follow=True).content.decode()
        assert "Version 2 was already active." in root.post(activate, follow=True).content.decode()
        assert LogEntry.objects.filter(object_id=str(prompt.pk)).count() == 1

    def test_an_unknown_version_is_not_found(self, root: Client, prompt: PromptResource) -> None:
        assert root.post(url("activate", prompt, 99)).status_code == 404
        assert root.get(url("compare", prompt), {"old": 1, "new": 99}).status_code == 404

    @pytest.mark.slow
    def test_saving_over_an_unseen_version_warns_and_loses_nothing(self, root: Client, prompt: PromptResource) -> None:
        add(operator("promptresource", "change_promptresource"), prompt, content="Theirs.\n")
        answer = add(root, prompt, content="Mine, typed for an hour.", note="why", after=1)
        shown = answer.content.decode()
        assert answer.status_code == 409
        assert prompt.versions.count() == 2
        assert "Operator promptresource-change_promptresource saved version 2 before you" in shown
        assert "Theirs." in shown
        assert "Mine, typed for an hour." in shown and 'value="why"' in shown
        assert 'name="after" value="2"' in shown
        assert add(root, prompt, content="Mine, typed for an hour.", after=2).status_code == 200
        assert prompt.versions.latest("number").content == "Mine, typed for an hour."

    def test_a_resource_without_versions_gets_its_first(self, root: Client) -> None:
        bare = PromptResource.objects.create(uri="rem://prompts/x", name="x", purpose="memory-policy")
        assert "First version" in page(root, change_url(bare))
        add(root, bare, activate="")
        bare.refresh_from_db()
        assert bare.active_version and bare.previous_version is None

    def test_a_missing_resource_redirects_to_the_list(self, root: Client) -> None:
        answer = root.get(reverse("admin:moments_app_promptresource_change", args=[999_999]))
        assert answer.status_code == 302


class TestComparing:
    """The difference between two versions."""

    def test_removed_and_added_lines_are_marked(self, root: Client, prompt: PromptResource) -> None:
        prompt.add_version("One.\nTwo.\n", created_by="test")
        prompt.add_version("One.\n2 & more.\n", created_by="test", note="a number")
        shown = page(root, url("compare", prompt), old=2, new=3)
        assert "<del>Two.</del>" in shown and "<ins>2 &amp; more.</ins>" in shown
        assert "removed" in shown and "added" in shown and "a number" in shown
        assert "The texts are the same." in page(root, url("compare", prompt), old=2, new=2)

    def test_a_hunk_has_three_context_lines_around_each_change(self) -> None:
        old = "\n".join(map(str, range(30)))
        [first, second] = line_diff(old, old.replace("\n5\n", "\nfive\n").replace("\n25\n", "\n"))
        assert [(line.kind, line.old, line.new) for line in first][2:5] == [
            ("same", 5, 5),
            ("removed", 6, None),
            ("added", None, 6),
        ]
        assert len(first) == 8 and [line.kind for line in second].count("removed") == 1
        assert line_diff(old, old) == []

    def test_invalid_numbers_redirect(self, root: Client, prompt: PromptResource) -> None:
        assert root.get(url("compare", prompt), {"old": "x"}).status_code == 302


class TestApproval:
    """Approval before a version is activated."""

    def test_with_approval_a_writer_cannot_activate_their_own_version(
        self, root: Client, prompt: PromptResource, settings: LazySettings
    ) -> None:
        settings.PROMPT_APPROVAL = "second"
        first = prompt.active_version
        mine = {"content": "Mine.", "after": 1, "activate": ""}
        shown = root.post(url("add_version", prompt), mine, follow=True).content.decode()
        assert "another editor must activate it" in shown and "Save and activate" not in shown
        root.post(url("activate", prompt, 2))
        prompt.refresh_from_db()
        assert prompt.active_version == first
        other = operator(group="editors")
        other.post(url("activate", prompt, 2))
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.number == 2
        root.post(url("activate", prompt, 1))
        prompt.refresh_from_db()
        assert prompt.active_version == first  # rolling back is possible whoever wrote the version

    def test_the_page_shows_whether_a_version_was_tried(self, root: Client, prompt: PromptResource) -> None:
        second = prompt.add_version("OTHER WORDS", created_by="operator:eve")
        assert "This version was not tried on a sample." in page(root, change_url(prompt))
        PromptVersion.objects.filter(pk=second.pk).update(is_tried=True)
        assert "This version was tried on a sample; the figures are above." in page(root, change_url(prompt))


class TestThePages:
    """Rules for all prompt pages."""

    @pytest.mark.slow
    def test_each_purpose_describes_input_and_answer(self, root: Client) -> None:
        for purpose in PromptResource.Purpose.values:
            resource, _ = PromptResource.objects.get_or_create(
                purpose=purpose, defaults={"uri": f"rem://prompts/{purpose}", "name": purpose}
            )
            shown = page(root, change_url(resource))
            assert ("Engine output" in shown) == (purpose != "memory-policy")
        builder = page(root, change_url(PromptResource.objects.get(purpose="moment-builder")))
        assert "moments › topic_tags" in builder and "list, at most 20" in builder

    def test_row_30_invalid_answers_are_counted_per_version(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        model_server.queue(behave.content("no JSON"), behave.content("again"))
        assert build(talk(ada, 60)).status == "queued"
        shown = page(root, change_url(prompt))
        assert '<td class="rem-number">2</td>' in shown

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        talk(ada, 2)
        prompt.activate(prompt.add_version("Two.", created_by="test"))
        urls = [change_url(prompt), f"{url('compare', prompt)}?old=1&new=2"]
        few = [queries_of(root, one) for one in urls]
        for number in range(70):
            prompt.add_version(f"Version {number}.", created_by="test")
            talk(ada, 1, session_id=f"s{number}")
        assert [queries_of(root, one) for one in urls] == few
        assert max(few) <= MAX_QUERIES
        shown = page(root, change_url(prompt))
        assert "Older versions" in shown
        assert "Older versions" not in page(root, change_url(prompt), before=23)

    @pytest.mark.slow
    def test_row_18_planted_scripts_stay_text(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        prompt.add_version(f"</textarea>{PLANTED}", created_by=PLANTED, note=PLANTED)
        shown = [
            page(root, change_url(prompt), version=2),
            page(root, url("compare", prompt), old=1, new=2),
        ]
        assert all("planted" in text and PLANTED not in text for text in shown)
