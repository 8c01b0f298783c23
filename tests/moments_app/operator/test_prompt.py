"""The editor of prompts."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import EngineCall, MemoryStream, Probe, PromptResource
from moments_app.operator.diff import line_diff
from moments_app.prompts import STREAM_CONSOLIDATION_URI
from sessions_app.models import Event, Session, UserProfile
from tests.support import openai_server as behave
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.streams import note
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str, prompt: PromptResource, *more: Any) -> str:
    return reverse(f"admin:moments_app_promptresource_{name}", args=[prompt.pk, *more])


def add(client: Client, prompt: PromptResource, **data: Any) -> Any:
    newest = prompt.versions.first()
    posted = {"content": "A new text.", "note": "try", "after": newest.number if newest else 0, **data}
    return client.post(url("add_version", prompt), posted, follow=True)


class TestVersions:
    """Saving, putting in force, going back."""

    def test_saving_makes_a_version_that_is_not_in_force_yet(self, root: Client, prompt: PromptResource) -> None:
        answer = add(root, prompt, content="Line one.\r\nLine two.\r\n")
        version = prompt.versions.latest("number")
        assert (version.content, version.note) == ("Line one.\nLine two.\n", "try")
        assert version.created_by == "operator:root"
        prompt.refresh_from_db()
        assert prompt.active_version != version
        assert "Line one." in answer.content.decode()

    @pytest.mark.slow
    def test_a_version_is_put_in_force_and_rolled_back_with_an_event_each(
        self, root: Client, prompt: PromptResource
    ) -> None:
        add(root, prompt, activate="")
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.content == "A new text."
        assert prompt.active_since and timezone.now() - prompt.active_since < timedelta(minutes=1)
        back = url("activate", prompt, 1)
        assert root.get(back).status_code == 405
        shown = page(root, change_url(prompt))
        assert "Roll back to version 1" in shown and back in shown
        assert "Version 1 is in force." in root.post(back, follow=True).content.decode()
        prompt.refresh_from_db()
        assert prompt.active_version.number == 1 and prompt.previous_version and prompt.previous_version.number == 2
        events = Event.objects.filter(type="prompt_activated").order_by("id")
        assert [(event.actor, event.payload["version"]) for event in events] == [
            ("operator:root", 2),
            ("operator:root", 1),
        ]
        told = LogEntry.objects.order_by("id").values_list("change_message", flat=True)
        assert list(told) == ["Saved version 2.", "Put version 2 in force.", "Put version 1 in force."]
        assert "Put version 2 in force." in page(root, change_url(prompt))

    def test_pressing_roll_back_twice_goes_back_once(self, root: Client, prompt: PromptResource) -> None:
        add(root, prompt, activate="")
        for _ in range(2):
            root.post(url("activate", prompt, 1))
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.number == 1
        assert prompt.previous_version and prompt.previous_version.number == 2

    @pytest.mark.parametrize("content", ["", "  \n ", "x" * 100_001, "a\0b"])
    def test_a_text_that_is_none_is_refused_by_name_and_the_rest_kept(
        self, root: Client, prompt: PromptResource, content: str
    ) -> None:
        answer = add(root, prompt, content=content, note="my reason")
        assert answer.status_code == 400
        assert "Text: " in answer.content.decode() and "my reason" in answer.content.decode()
        assert prompt.versions.count() == 1

    def test_an_unknown_version_is_not_found(self, root: Client, prompt: PromptResource) -> None:
        assert root.post(url("activate", prompt, 99)).status_code == 404
        assert root.get(url("compare", prompt), {"old": 1, "new": 99}).status_code == 404

    @pytest.mark.slow
    def test_saving_over_a_version_one_has_not_seen_says_so_and_loses_nothing(
        self, root: Client, prompt: PromptResource
    ) -> None:
        add(operator("promptresource", "change_promptresource"), prompt, content="Theirs.\n")
        answer = add(root, prompt, content="Mine, typed for an hour.", note="why", after=1)
        shown = answer.content.decode()
        assert answer.status_code == 409
        assert prompt.versions.count() == 2
        assert "Version 2 was saved meanwhile by operator:" in shown and "Theirs." in shown
        assert "Mine, typed for an hour." in shown and 'value="why"' in shown
        assert 'name="after" value="2"' in shown
        assert add(root, prompt, content="Mine, typed for an hour.", after=2).status_code == 200
        assert prompt.versions.latest("number").content == "Mine, typed for an hour."

    def test_a_resource_without_a_version_gets_its_first(self, root: Client) -> None:
        bare = PromptResource.objects.create(uri="rem://prompts/x", name="x", purpose="memory-policy")
        assert "First version" in page(root, change_url(bare))
        add(root, bare, activate="")
        bare.refresh_from_db()
        assert bare.active_version and bare.previous_version is None

    def test_what_is_not_there_leads_back_to_the_list(self, root: Client) -> None:
        answer = root.get(reverse("admin:moments_app_promptresource_change", args=[999_999]))
        assert answer.status_code == 302


class TestComparing:
    """What differs between two versions."""

    def test_lines_are_marked_as_removed_and_added(self, root: Client, prompt: PromptResource) -> None:
        prompt.add_version("One.\nTwo.\n", created_by="test")
        prompt.add_version("One.\n2 & more.\n", created_by="test", note="a number")
        shown = page(root, url("compare", prompt), old=2, new=3)
        assert "<del>Two.</del>" in shown and "<ins>2 &amp; more.</ins>" in shown
        assert "removed" in shown and "added" in shown and "a number" in shown
        assert "The texts are the same." in page(root, url("compare", prompt), old=2, new=2)

    def test_a_hunk_has_three_lines_around_each_change(self) -> None:
        old = "\n".join(map(str, range(30)))
        [first, second] = line_diff(old, old.replace("\n5\n", "\nfive\n").replace("\n25\n", "\n"))
        assert [(line.kind, line.old, line.new) for line in first][2:5] == [
            ("same", 5, 5),
            ("removed", 6, None),
            ("added", None, 6),
        ]
        assert len(first) == 8 and [line.kind for line in second].count("removed") == 1
        assert line_diff(old, old) == []

    def test_numbers_that_are_none_lead_back(self, root: Client, prompt: PromptResource) -> None:
        assert root.get(url("compare", prompt), {"old": "x"}).status_code == 302


class TestTrying:
    """The text in the editor, beside the version in force."""

    def ask(self, client: Client, prompt: PromptResource, subject: Any, **data: str) -> Any:
        posted = {"content": "OTHER WORDS", "subject": subject, "step": "try", **data}
        return client.post(url("try", prompt), posted, headers={"HX-Request": "true"})

    @pytest.mark.slow
    def test_both_sides_are_shown_and_nothing_is_written(
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
    def test_without_javascript_the_whole_page_comes_with_what_was_typed(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120)
        posted = {"content": "OTHER WORDS", "note": "why", "after": 1, "subject": session.pk, "step": "try"}
        shown = root.post(url("try", prompt), posted).content.decode()
        assert "<html" in shown and "OTHER WORDS</textarea>" in shown and 'value="why"' in shown
        assert "The text in the editor" in shown and f'value="{session.pk}" checked' in shown
        found = root.post(url("try", prompt), posted | {"step": "find", "begins": "nobody"}).content.decode()
        assert "Nothing begins so." in found and "OTHER WORDS" in found
        assert prompt.versions.count() == 1

    def test_a_saved_text_is_called_by_its_number(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        version = prompt.add_version("OTHER WORDS", created_by="test")
        assert "Version 2" in self.ask(root, prompt, talk(ada, 120).pk).content.decode()
        assert EngineCall.objects.filter(prompt_version=version).exists()

    def test_sessions_are_found_by_the_beginning_of_an_id(
        self, root: Client, prompt: PromptResource, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
    ) -> None:
        talk(ada, 2, session_id="chat-1")
        talk(bo, 2, session_id="other")
        assert "chat-1" in page(root, url("subjects", prompt), begins="chat")
        assert "other" not in page(root, url("subjects", prompt), begins="chat")
        assert "other" in page(root, url("subjects", prompt), begins="bo")

    def test_consolidations_are_tried_on_streams(
        self, root: Client, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        prompt = PromptResource.objects.get(uri=STREAM_CONSOLIDATION_URI)
        MemoryStream.objects.ensure_for(talk(ada, 2))
        stream = MemoryStream.objects.get(stream_type="user")
        note(stream, "Likes kilns.")
        assert "user stream" in page(root, url("subjects", prompt), begins="ada")
        shown = self.ask(root, prompt, stream.pk).content.decode()
        assert "1 observations" in shown and shown.count("Likes kilns.") == 2

    @pytest.mark.slow
    def test_probes_of_what_it_is_tried_on_are_asked_for_both_texts(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 120)
        asked = {"question": "What of the kiln?", "expected": "kiln and glaze", "created_by": "test"}
        probe = Probe.objects.create(user=ada, session=session, **asked)
        shown = self.ask(root, prompt, session.pk).content.decode()
        assert change_url(probe) in shown and shown.count("2 of 2 words") == 2

    @pytest.mark.parametrize(
        ("subject", "told"), [("", "Choose one"), ("x", "Try on: "), ("99999", "not there any more")]
    )
    def test_what_it_can_not_be_tried_on_is_told(
        self, root: Client, prompt: PromptResource, model_server: OpenAIServer, subject: str, told: str
    ) -> None:
        assert told in self.ask(root, prompt, subject).content.decode()
        assert not model_server.requests

    def test_the_extractive_engine_is_said_to_read_no_prompts(self, root: Client, prompt: PromptResource) -> None:
        assert "It reads no prompts" in page(root, change_url(prompt))

    def test_row_18_a_viewer_can_not_try(self, prompt: PromptResource, ada: UserProfile) -> None:
        session = talk(ada, 120)
        for client in (operator("view_"), operator("change_promptresource", "view_promptresource")):
            assert self.ask(client, prompt, session.pk).status_code == 403
            assert client.get(url("subjects", prompt)).status_code == 403
        assert "Try it" not in page(operator("view_prompt"), change_url(prompt))


class TestThePages:
    """What holds of all of them."""

    @pytest.mark.slow
    def test_each_purpose_says_what_the_engine_gets_and_has_to_answer(self, root: Client) -> None:
        for purpose in PromptResource.Purpose.values:
            resource, _ = PromptResource.objects.get_or_create(
                purpose=purpose, defaults={"uri": f"rem://prompts/{purpose}", "name": purpose}
            )
            shown = page(root, change_url(resource))
            assert ("What it has to answer" in shown) == (purpose != "memory-policy")
        builder = page(root, change_url(PromptResource.objects.get(purpose="moment-builder")))
        assert "moments › topic_tags" in builder and "list, at most 20" in builder

    def test_row_30_answers_that_were_no_good_are_counted_against_their_version(
        self, root: Client, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        model_server.queue(behave.content("no JSON"), behave.content("again"))
        assert build(talk(ada, 60)).status == "queued"
        shown = page(root, change_url(prompt))
        assert '<td class="rem-number">2</td>' in shown

    @pytest.mark.slow
    def test_the_same_number_of_queries_however_many_versions(
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
        session = talk(ada, 120, text=f"{PLANTED} </script>")
        Session.objects.filter(pk=session.pk).update(session_id=PLANTED)
        shown = [
            page(root, change_url(prompt), version=2),
            page(root, url("compare", prompt), old=1, new=2),
            page(root, url("subjects", prompt)),
            root.post(url("try", prompt), {"content": PLANTED, "subject": session.pk}).content.decode(),
        ]
        assert all("planted" in text and PLANTED not in text for text in shown)
