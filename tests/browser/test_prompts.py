"""The editor of prompts and the search console in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Dialog, Page, expect

from moments_app.models import EngineCall, Job, Moment, PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.browser.conftest import PHONE
from tests.support import openai_server as behave
from tests.support.extras import needs
from tests.support.jobs import count
from tests.support.openai_server import OpenAIServer
from tests.support.pages import change_url
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def prompt(transactional_db: None) -> PromptResource:
    return PromptResource.objects.get(uri=MOMENT_BUILDER_URI)


def test_an_operator_can_edit_try_activate_and_roll_back_a_prompt(
    tab: Page, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
) -> None:
    talk(ada, 120, session_id="chat-1")
    talk(ada, 120, session_id="other")
    tab.goto(change_url(prompt))
    expect(tab.locator("h1")).to_have_count(1)
    text = tab.get_by_label("Text", exact=True)
    text.fill(f"Be brief.\n{text.input_value()}")
    expect(tab.get_by_text("Not saved yet.")).to_be_visible()

    tab.get_by_label("Start of a session_id or user_id").press_sequentially("chat")
    expect(tab.get_by_role("radio")).to_have_count(1)
    tab.get_by_label(re.compile("chat-1")).check()
    model_server.hold()
    tab.get_by_role("button", name="Try it").click()
    expect(tab.get_by_text("Waiting for the model")).to_be_visible()
    model_server.wait_for_held(2)
    model_server.release()
    expect(tab.get_by_role("heading", name="The text in the editor")).to_be_visible()
    expect(tab.locator(".rem-side")).to_have_count(2)
    assert not Moment.objects.exists() and not Job.objects.filter(status="completed").exists()
    assert EngineCall.objects.filter(purpose="try moment-builder").count() == 2

    tab.get_by_label("What changed, and why").fill("Shorter moments")
    tab.get_by_text("Save and activate…").click()
    tab.get_by_role("button", name="Save and activate", exact=True).click()
    expect(tab.get_by_text("Version 2 is active.")).to_be_visible()
    tab.get_by_role("button", name="Compare", exact=True).click()
    expect(tab.get_by_role("heading", name="From version 1 to version 2")).to_be_visible()
    expect(tab.locator("ins")).to_have_text("Be brief.")
    tab.get_by_role("link", name="← Moment builder").click()
    tab.get_by_text("Roll back to version 1…").click()
    tab.get_by_role("button", name="Roll back to version 1", exact=True).click()
    expect(tab.get_by_text("Version 1 is active.")).to_be_visible()
    prompt.refresh_from_db()
    assert prompt.active_version and prompt.active_version.number == 1


def test_the_page_reports_a_failing_engine(
    tab: Page, prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
) -> None:
    model_server.always(behave.error(500))
    talk(ada, 120)
    tab.goto(change_url(prompt))
    tab.get_by_role("radio").check()
    tab.get_by_role("button", name="Try it").click()
    expect(tab.get_by_text("answered with status 500")).to_be_visible()


def test_leaving_unsaved_text_asks_for_confirmation(tab: Page, prompt: PromptResource) -> None:
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    tab.on("dialog", stay)
    tab.goto(change_url(prompt))
    tab.get_by_label("Text", exact=True).press_sequentially("x")
    with tab.expect_event("dialog"):
        tab.close(run_before_unload=True)
    assert asked == ["beforeunload"]
    expect(tab.get_by_text("Not saved yet.")).to_be_visible()


def test_the_editor_can_be_used_by_keyboard_and_numbers_its_lines(tab: Page, prompt: PromptResource) -> None:
    tab.goto(change_url(prompt))
    text = tab.get_by_label("Text", exact=True)
    text.fill("One.\n\n" + "A long line. " * 40 + "\nLast.")
    expect(tab.locator(".rem-numbers > div")).to_have_count(4)
    heights = tab.evaluate("['.rem-numbers', '#rem-content'].map(box => document.querySelector(box).scrollHeight)")
    assert abs(heights[0] - heights[1]) <= 1
    text.press("Tab")
    expect(tab.get_by_label("What changed, and why")).to_be_focused()


@needs("lab")
def test_the_recall_console_shows_ranks_for_a_query_with_a_typo(tab: Page, ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "The harpsichord came from Lyon."), NewMessage("assistant", "How fine.")])
    count(ada)
    tab.goto("/admin/")
    tab.get_by_role("link", name="Search console").click()
    tab.get_by_label("User (user_id)").fill("ada")
    tab.get_by_label("Query").fill("harpsicord")
    tab.get_by_role("button", name="Search", exact=True).click()
    first = tab.locator(".rem-result").first
    expect(first).to_contain_text("The harpsichord came from Lyon.")
    expect(first).to_contain_text("BM25")
    expect(tab.get_by_role("row", name=re.compile("harpsichord similar to"))).to_be_visible()
    first.get_by_role("link").click()
    expect(tab.locator("#turn-0")).to_contain_text("The harpsichord came from Lyon.")


def test_nothing_overflows_on_a_phone(
    log_in: Callable[..., Page], prompt: PromptResource, ada: UserProfile, model_server: OpenAIServer
) -> None:
    append(ada, "x" * 255, [NewMessage("user", "harpsichord" * 40)])
    prompt.add_version("w" * 600, created_by="operator:" + "n" * 100, note="why" * 80)
    tab = log_in(viewport=PHONE)
    urls = [
        f"{change_url(prompt)}?version=2",
        f"/admin/moments_app/promptresource/{prompt.pk}/compare/?old=1&new=2",
        "/admin/moments_app/memoryatom/recall/?user_id=ada&query=harpsichord",
    ]
    for url in urls:
        tab.goto(url)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
