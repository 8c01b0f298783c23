"""The chain of moments in a browser."""

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from sessions_app.models import UserProfile
from tests.support.moments import remember

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_chain_longer_than_a_page_can_be_walked_in_both_directions_by_keyboard(
    tab: Page, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LATER", "EARLIER"):
        monkeypatch.setattr(f"moments_app.operator.admin.moment.{name}", 2)  # moments on each side of the open one
    moments = remember(ada, 8)
    tab.goto(reverse("admin:moments_app_moment_chain", args=[ada.pk]))
    opened = tab.locator(".rem-step-open .rem-chain-name")
    for number in reversed(range(8)):
        expect(opened).to_have_text(f"Moment {number} of s1")
        tab.keyboard.press("ArrowLeft")
    expect(tab.get_by_role("link", name="Earlier")).to_have_count(0)
    expect(tab.locator(".rem-step-open summary")).to_be_focused()
    assert tab.url.endswith(f"?at={moments[0].pk}")
    for number in range(8):
        expect(opened).to_have_text(f"Moment {number} of s1")
        tab.keyboard.press("ArrowRight")
    expect(opened).to_have_text("Moment 7 of s1")


def test_a_moment_opens_in_place_and_links_to_its_turns(tab: Page, ada: UserProfile) -> None:
    moments = remember(ada, 40)
    tab.goto(reverse("admin:moments_app_moment_chain", args=[ada.pk]))
    tab.get_by_role("link", name="Earlier moments").click()
    row = tab.locator(f"#moment-{moments[2].pk}")
    row.locator("summary").focus()
    tab.keyboard.press("Enter")
    expect(row.locator("#turn-4")).to_contain_text("Turn 4 is about")
    expect(tab.locator(f"#moment-{moments[-1].pk} #turn-78")).to_be_visible()  # the other moment stays open
    row.get_by_role("link", name="view in session").click()
    expect(tab.locator("#turn-4")).to_be_in_viewport()


def test_loading_more_shows_every_moment_once(tab: Page, ada: UserProfile) -> None:
    moments = remember(ada, 60)
    tab.goto(f"{reverse('admin:moments_app_moment_chain', args=[ada.pk])}?at={moments[30].pk}")
    for name in ("Later moments", "Earlier moments"):
        while tab.get_by_role("link", name=name).count():
            shown = tab.locator(".rem-chain-moment").count()
            tab.get_by_role("link", name=name).click()
            expect(tab.locator(".rem-chain-moment")).not_to_have_count(shown)
    ids = tab.locator(".rem-steps > li[id]").evaluate_all("rows => rows.map(row => row.id)")
    assert ids == [f"moment-{moment.pk}" for moment in reversed(moments)]
