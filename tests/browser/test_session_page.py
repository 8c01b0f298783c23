"""The page of a session in a browser."""

import pytest
from playwright.sync_api import Page, expect

from sessions_app.models import UserProfile
from tests.support.pages import change_url
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_operator_reads_a_transcript(tab: Page, ada: UserProfile) -> None:
    session = talk(ada, 12)
    tab.goto(change_url(session))
    expect(tab.locator("#turn-11")).to_contain_text("Turn 11 is about")
