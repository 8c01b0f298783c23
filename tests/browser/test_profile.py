"""The page of a person in a browser."""

import pytest
from playwright.sync_api import Page, expect

from sessions_app.models import UserProfile
from tests.support.pages import change_url
from tests.support.streams import written

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_operator_can_edit_a_profile_and_see_past_facts(tab: Page, ada: UserProfile) -> None:
    written(ada, summary="Ada has a kiln.", interests=["glazes, old ones"])
    tab.goto(change_url(ada))
    expect(tab.get_by_role("region", name="Profile", exact=True).get_by_text("Ada has a kiln.")).to_be_visible()
    tab.get_by_role("navigation", name="This person").get_by_role("link", name="Details").click()
    tab.get_by_label("Summary").fill("Ada sold a kiln.")
    tab.get_by_role("button", name="Save", exact=True).click()
    tab.goto(change_url(ada))
    expect(tab.get_by_role("region", name="Profile", exact=True).get_by_text("Ada sold a kiln.")).to_be_visible()
    expect(tab.get_by_role("region", name="Past facts").get_by_text("Ada has a kiln.")).to_be_visible()
    ada.refresh_from_db()
    assert (ada.summary, ada.interests) == ("Ada sold a kiln.", ["glazes, old ones"])
