"""The first tasks of docs/admin.md, each from the dashboard to its end, with the keyboard only."""

import re

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from moments_app.engines.interface import CallRecord
from moments_app.models import EngineCall, FailureGroup, Job, MemoryAtom, PromptResource
from moments_app.models.engine_call import EngineCallQuerySet
from moments_app.prompts import MOMENT_BUILDER_URI
from sessions_app.models import ApiKey, Session, UserProfile
from sessions_app.security.staff import role_of
from sessions_app.transcript.append import NewMessage, append
from tests.browser.keyboard import Keyboard
from tests.support.extras import needs
from tests.support.jobs import build
from tests.support.lives import CHILD, MAYA, say
from tests.support.openai_server import OpenAIServer
from tests.support.streams import written
from tests.support.transcript import talk, turns

pytestmark = [pytest.mark.slow(seconds=20), pytest.mark.django_db(transaction=True)]

CALLS: EngineCallQuerySet = EngineCall.objects  # type: ignore[assignment]


@pytest.fixture
def keys(tab: Page) -> Keyboard:
    """The keyboard of an operator on the dashboard."""
    tab.goto(reverse("admin:index"))
    return Keyboard(tab)


@pytest.fixture
def built(ada: UserProfile) -> Session:
    """A session of 120 turns, the older of them in moments. Turn 30 is about a harpsichord."""
    batch = turns(120)
    batch[30] = NewMessage("user", "The harpsichord came from Lyon, in a crate.", created_at=batch[30].created_at)
    session = append(ada, "s1", batch).session
    assert build(session).status == Job.Status.COMPLETED
    return session


def test_a_colleague_can_be_invited(tab: Page, keys: Keyboard) -> None:
    keys.open("Staff")
    keys.skip()
    keys.fill("Login", "ida")
    keys.to("viewer")  # Tab leads to the selected role, and arrow keys select another
    tab.keyboard.press("ArrowDown")
    keys.press_on("Invite")
    tab.wait_for_url("**/invite/")
    keys.skip()
    keys.to("Link for ida")
    keys.press_on("Copy")
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    assert role_of(User.objects.get(username="ida")) == "editor"


def test_a_person_can_be_found_and_read_about(tab: Page, keys: Keyboard, ada: UserProfile) -> None:
    written(ada, summary="Ada has a kiln.", interests=["glazes"])
    keys.open("Find")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("kiln")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**?q=kiln")
    keys.skip()
    keys.press_on("ada")
    expect(tab.get_by_role("heading", name="Profile", exact=True)).to_be_visible()
    keys.skip()
    keys.press_on("Days")
    expect(tab).to_have_url(re.compile("/days/"))


def test_the_reason_for_an_answer_can_be_found(tab: Page, keys: Keyboard, built: Session) -> None:
    keys.open("Sessions")
    tab.keyboard.press("/")
    tab.keyboard.type("harpsichords")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**?q=harpsichords")
    keys.skip()
    keys.press_on("Turn 30")
    expect(tab.locator("#turn-30")).to_contain_text("came from Lyon")
    keys.press_on("Trace of turn 30")
    expect(tab.get_by_role("heading", name="Question and answer")).to_be_visible()


@pytest.mark.usefixtures("forming")
def test_a_wrong_fact_can_be_corrected_and_the_correction_undone(tab: Page, keys: Keyboard, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    keys.open("Find")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("Maya")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**?q=Maya")
    keys.skip()
    keys.press_on("fact,")
    expect(tab.get_by_role("heading", name="Fact", exact=True)).to_be_visible()
    keys.skip()
    keys.press_on("Correct or end…")
    expect(tab.get_by_role("heading", name="Correct or end this fact")).to_be_visible()
    keys.skip()
    keys.fill("What is true", "User's daughter is called Mia.")
    keys.press_on("Preview")
    expect(tab.get_by_role("heading", name="Matching items")).to_be_visible()
    keys.skip()
    keys.press_on("Confirm")
    expect(tab.get_by_role("heading", name="Changes")).to_be_visible()
    assert not MemoryAtom.objects.active().filter(content=MAYA).exists()
    keys.skip()
    keys.press_on("Undo this correction")
    expect(tab.get_by_text("is undone").first).to_be_visible()
    assert MemoryAtom.objects.active().filter(content=MAYA).exists()


def test_a_turn_can_be_retracted_and_the_retraction_undone(tab: Page, keys: Keyboard, built: Session) -> None:
    keys.open("Find")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("harpsichord")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**?q=harpsichord")
    keys.skip()
    keys.press_on("s1 of ada, turn 30")
    expect(tab.locator("#turn-30")).to_contain_text("came from Lyon")
    keys.press_on("Select turn 30", "Space")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="Retract turns")).to_be_visible()
    keys.skip()
    keys.fill("Reason", "planted")
    keys.press_on("Retract 1 turn")
    tab.get_by_role("link", name="Withdrawn items").press("Enter")
    expect(tab.get_by_role("heading", name="Withdrawn items")).to_be_visible()
    assert built.messages.exclude(retracted_at=None).count() == 1
    keys.skip()
    keys.press_on("Undo…")
    keys.press_on("Undo this retraction")
    expect(tab.get_by_text("is undone").first).to_be_visible()
    assert not built.messages.exclude(retracted_at=None).exists()


def test_a_failure_is_shown_on_the_dashboard_and_can_be_resolved(tab: Page, keys: Keyboard, ada: UserProfile) -> None:
    error = "It gave no valid answer."
    job = Job.objects.request("build_moments", talk(ada, 30), requested_by="append")
    CALLS.record(CallRecord("moment-builder", "openai:gpt", 5, error_kind="invalid_answer", error=error), job=job)
    Job.objects.filter(pk=job.pk).update(status="failed", failure=FailureGroup.objects.get(), error=error)
    tab.reload()
    keys.skip()
    keys.press_on("View details")
    expect(tab.get_by_text("What to do")).to_be_visible()
    keys.skip()
    keys.press_on("Retry all…")
    keys.press_on("Retry 1 job")
    expect(tab.get_by_text("0 failed, 1 waiting job")).to_be_visible()
    job.refresh_from_db()
    assert job.status == Job.Status.QUEUED
    Job.objects.update(status=Job.Status.COMPLETED)
    tab.reload()
    expect(tab.get_by_text("resolved", exact=True)).to_be_visible()


def test_a_prompt_can_be_changed_tried_activated_and_rolled_back(
    tab: Page, keys: Keyboard, ada: UserProfile, model_server: OpenAIServer
) -> None:
    prompt = PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
    talk(ada, 60)
    keys.open("Prompts")
    keys.skip()
    keys.press_on("Moment builder")
    expect(tab.get_by_role("heading", name="Version 1")).to_be_visible()
    keys.skip()
    keys.to("Text")
    tab.keyboard.press("Control+Home")
    tab.keyboard.type("Be brief. ")
    keys.fill("What changed, and why", "Shorter moments")
    keys.press_on("Save as new version")
    expect(tab.get_by_role("heading", name="Version 2")).to_be_visible()
    keys.skip()
    keys.press_on("Try on a sample")
    expect(tab.get_by_role("heading", name="Version 2 on a sample")).to_be_visible()
    expect(tab.locator(".rem-side summary")).to_be_visible()
    keys.skip()
    keys.press_on("← Moment builder")
    expect(tab.get_by_role("heading", name="Trials on samples")).to_be_visible()
    keys.skip()
    keys.press_on("Activate version 2…")
    keys.press_on("Activate this version")
    expect(tab.get_by_text("Version 2 is active.")).to_be_visible()
    keys.skip()
    keys.press_on("Roll back to version 1…")
    keys.press_on("Roll back to version 1")
    expect(tab.get_by_text("Version 1 is active.")).to_be_visible()
    prompt.refresh_from_db()
    assert prompt.active_version and prompt.active_version.number == 1


@needs("lab")
def test_a_chat_of_a_test_person_shows_the_sources_of_memory(
    tab: Page, keys: Keyboard, upstream: OpenAIServer, kept_receipts: None
) -> None:
    keys.open("Playground")
    keys.skip()
    keys.fill("Name", "tess")
    tab.keyboard.press("Enter")
    for text in ("My dog is called Rex.", "What is my dog called?"):
        expect(tab.get_by_role("button", name="Send")).to_be_visible()
        keys.skip()
        keys.fill("Message as tess", text)
        keys.press_on("Send")
        expect(tab.locator(".rem-turn").get_by_text(text, exact=True).first).to_be_visible()
    keys.skip()
    keys.to("turn 0")
    expect(tab.locator("#turn-0.rem-lit")).to_be_visible()


def test_a_key_can_be_created_and_revoked(tab: Page, keys: Keyboard) -> None:
    keys.open("API keys")
    keys.skip()
    keys.press_on("Add API key")
    tab.wait_for_url("**/add/")
    keys.skip()
    keys.fill("Name", "a partner")
    keys.press_on("Save")
    expect(tab.get_by_role("button", name="Copy")).to_be_visible()
    keys.skip()
    keys.press_on("Copy")
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    keys.press_on("View key")
    expect(tab.locator(".rem-badge").first).to_have_text("active")
    keys.skip()
    keys.press_on("Revoke…")
    keys.press_on("Revoke this key")
    expect(tab.locator(".rem-badge").first).to_have_text("revoked")
    assert ApiKey.objects.get().state == "revoked"


def test_a_person_can_be_exported_and_erased(tab: Page, keys: Keyboard, built: Session) -> None:
    keys.open("People")
    keys.skip()
    keys.press_on("ada")
    expect(tab.get_by_role("heading", name="Profile", exact=True)).to_be_visible()
    keys.skip()
    keys.to("Export")
    with tab.expect_download() as download:
        tab.keyboard.press("Enter")
    assert download.value.suggested_filename == "export.zip"
    keys.press_on("Erase…")
    expect(tab.get_by_role("heading", name=re.compile("Erase"))).not_to_have_count(0)
    keys.skip()
    keys.fill("Type the user_id ada", "ada")
    keys.press_on("Erase")
    expect(tab.get_by_text("nothing is left").first).to_be_visible()
    assert not UserProfile.objects.filter(user_id="ada").exists()
