"""The page of a person in a browser."""

import pytest
from playwright.sync_api import Page, expect

from sessions_app.models import UserProfile
from tests.support.pages import change_url

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_operator_corrects_a_profile_sees_what_changed_and_restores_what_was(tab: Page, ada: UserProfile) -> None:
    ada.merge(summary="Ada has a kiln.", interests=["glazes, old ones"], preferred_topics=[], actor="operator:eve")
    tab.goto(change_url(ada))
    expect(tab.get_by_text("Ada has a kiln.")).to_be_visible()
    tab.get_by_role("navigation", name="This person").get_by_role("link", name="Details").click()
    tab.get_by_label("Summary").fill("Ada sold a kiln.")
    tab.get_by_role("button", name="Save", exact=True).click()
    tab.goto(change_url(ada))
    tab.locator("#content").get_by_role("link", name="Profile history").click()
    changed = tab.get_by_role("region", name="Changes")
    expect(changed.locator(".rem-prose del")).to_have_text("has")
    expect(changed.locator(".rem-prose ins")).to_have_text("sold")
    expect(changed.get_by_text("glazes, old ones")).to_be_visible()
    tab.get_by_role("row", name="Ada has a kiln.").get_by_role("button", name="Restore").click()
    expect(tab.get_by_text("The profile is restored to that version.")).to_be_visible()
    expect(tab.get_by_role("row").nth(1)).to_contain_text("Ada has a kiln.")
    ada.refresh_from_db()
    assert (ada.summary, ada.interests) == ("Ada has a kiln.", ["glazes, old ones"])


def test_two_states_are_chosen_and_compared(tab: Page, ada: UserProfile) -> None:
    for summary in ("One.", "Two.", "Three."):
        ada.merge(summary=summary, interests=[], preferred_topics=[], actor="operator:eve")
    tab.goto(change_url(ada).replace("change/", "versions/"))
    tab.get_by_role("row", name="One.").locator("input[name=from]").check()
    tab.get_by_role("row", name="Three.").locator("input[name=to]").check()
    tab.get_by_role("button", name="Compare").click()
    changed = tab.get_by_role("region", name="Changes")
    expect(changed.locator(".rem-prose")).to_have_text("One.Three.")
