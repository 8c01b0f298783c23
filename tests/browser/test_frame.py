"""The frame of each page, used by mouse and keyboard under its content policy."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, Route, expect

from moments_app.models import Entity
from sessions_app.models import ApiKey, Event, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.browser.conftest import PHONE
from tests.support.entities import make_entity
from tests.support.pages import change_url, list_url
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


TABS = 40  # maximum presses until the main control of a page
_FOCUSED = "() => (document.activeElement.ariaLabel || document.activeElement.innerText || '').trim()"


def press_on(tab: Page, name: str) -> None:
    """Press Tab until the element with this name is focused, then Enter."""
    for _ in range(TABS):
        tab.keyboard.press("Tab")
        if tab.evaluate(_FOCUSED).endswith(name):  # the name may start with an icon of the sidebar
            return tab.keyboard.press("Enter")
    raise AssertionError(f"{TABS} times Tab don't lead to {name}.")


def test_the_theme_can_be_chosen_and_is_kept(tab: Page) -> None:
    tab.goto(reverse("admin:index"))
    tab.get_by_role("button", name="root").click()
    tab.get_by_role("button", name="Dark").click()
    expect(tab.locator("html.dark")).to_have_count(1)
    tab.reload()
    expect(tab.locator("html.dark")).to_have_count(1)
    tab.get_by_role("button", name="root").press("Enter")
    tab.get_by_role("button", name="Light").press("Enter")
    expect(tab.locator("html.dark")).to_have_count(0)


def test_the_sidebar_can_be_hidden_and_stays_hidden(tab: Page) -> None:
    tab.goto(reverse("admin:index"))
    sidebar = tab.locator("#nav-sidebar")
    expect(sidebar).to_be_visible()
    tab.get_by_role("button", name="Sidebar").click()
    expect(sidebar).to_be_hidden()
    tab.reload()
    expect(sidebar).to_be_hidden()
    tab.get_by_role("button", name="Sidebar").click()
    expect(sidebar).to_be_visible()


def test_the_sidebar_can_be_opened_and_closed_on_a_phone(tab: Page) -> None:
    tab.set_viewport_size(PHONE)
    tab.goto(reverse("admin:index"))
    sidebar = tab.locator("#nav-sidebar")
    expect(sidebar).to_be_hidden()
    tab.get_by_role("button", name="Sidebar").click()
    expect(sidebar).to_be_visible()
    sidebar.get_by_role("button", name="Close").click()
    expect(sidebar).to_be_hidden()


def test_a_list_can_be_searched_by_keyboard_and_filtered(tab: Page, ada: UserProfile) -> None:
    talk(ada, 2, session_id="alpha")
    talk(ada, 2, session_id="beta")
    tab.goto(list_url(Session))
    tab.keyboard.press("/")
    tab.keyboard.type("alp")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**?q=alp")
    expect(tab.locator("#result_list")).not_to_contain_text("beta")
    filters = tab.locator("#changelist-filter")
    tab.get_by_role("button", name="Filters").click()
    expect(filters).to_be_visible()
    tab.keyboard.press("Escape")
    expect(filters).to_be_hidden()
    tab.get_by_role("button", name="Filters").click()
    filters.get_by_role("link", name="cleared").click()
    expect(tab.locator("#content")).not_to_contain_text("alpha")


def test_an_action_can_be_run_on_selected_rows(tab: Page, ada: UserProfile) -> None:
    key, _ = ApiKey.objects.issue("my-app")
    tab.goto(list_url(ApiKey))
    expect(tab.get_by_role("button", name="Run")).to_be_hidden()
    tab.locator(f"input[name=_selected_action][value='{key.pk}']").check()
    tab.locator("select[name=action]").select_option("revoke")
    tab.get_by_role("button", name="Run").click()
    expect(tab.locator("#main")).to_contain_text("my-app")
    tab.get_by_role("button", name="Revoke these keys").click()
    expect(tab.locator("#main")).to_contain_text("is revoked.")


def test_one_key_skips_the_sidebar(tab: Page) -> None:
    tab.goto(reverse("admin:index"))
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to main content")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()


def test_the_first_field_of_an_add_page_is_focused_even_if_the_page_appears_late(tab: Page) -> None:
    held: list[Route] = []
    tab.route(re.compile(r"/alpine\.\w+\.js$"), lambda route: held.append(route))  # the script that shows the page
    with tab.expect_response("**/change_form.*.js"):  # the script that sets the focus
        tab.goto(reverse("admin:sessions_app_apikey_add"), wait_until="commit")
    tab.wait_for_timeout(100)
    held[0].continue_()
    expect(tab.locator("#id_name")).to_be_focused()


def test_sidebar_entries_are_named_without_their_icons(tab: Page) -> None:
    tab.goto(reverse("admin:index"))
    sidebar = tab.locator("#nav-sidebar")
    expect(sidebar.get_by_role("link", name="Sessions", exact=True)).to_be_visible()
    expect(sidebar.get_by_role("link", name="Staff")).to_be_in_viewport(ratio=1)  # the last entry, without scrolling
    sidebar.get_by_role("link", name="Jobs").click()
    tab.get_by_role("navigation", name="Related lists").get_by_role("link", name="Schedules").click()
    expect(tab.get_by_role("heading", name="Schedules")).to_be_visible()
    expect(sidebar.locator("[aria-current]")).to_contain_text("Jobs")


def test_a_phone_shows_four_rows_of_a_list_as_cards(tab: Page, ada: UserProfile) -> None:
    talk(ada, 2, session_id="alpha")
    tab.set_viewport_size(PHONE)
    tab.goto(list_url(Session))
    card = tab.locator("#result_list .data-row").bounding_box()
    assert card and card["height"] <= PHONE["height"] / 4


def test_a_turn_and_its_trace_can_be_found_by_keyboard(tab: Page, ada: UserProfile) -> None:
    append(ada, "alpha", [NewMessage("user", "The harpsichord came from Lyon."), NewMessage("assistant", "Did it?")])
    tab.goto(reverse("admin:index"))
    press_on(tab, "Find")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("harpsichords")
    tab.keyboard.press("Enter")
    expect(tab.locator("mark")).to_have_text("harpsichord")
    press_on(tab, "alpha of ada, turn 0")
    expect(tab.locator("#turn-0")).to_contain_text("from Lyon.")
    press_on(tab, "Trace of turn 0")
    expect(tab.get_by_role("heading", name="Question and answer")).to_be_visible()


def test_pages_are_found_by_name(tab: Page) -> None:
    tab.goto(reverse("admin:index"))
    tab.keyboard.press("Control+k")
    tab.keyboard.type("retrac")
    expect(tab.locator("#command-results-list")).to_contain_text("Retractions")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/moments_app/retraction/")


def test_a_name_typed_right_after_the_shortcut_is_searched_even_if_drawing_is_slow(tab: Page) -> None:
    tab.add_init_script("window.requestAnimationFrame = (draw) => setTimeout(draw, 500)")
    tab.goto(reverse("admin:index"))
    tab.keyboard.press("Control+k")
    tab.keyboard.type("retrac")
    expect(tab.locator("#search-input-command")).to_have_value("retrac")
    expect(tab.locator("#command-results-list")).to_contain_text("Retractions")


def test_a_list_can_be_paged(tab: Page) -> None:
    Event.objects.bulk_create(Event(type="x", actor="test") for _ in range(120))
    tab.goto(list_url(Event))
    tab.get_by_role("link", name="Next").click()
    tab.wait_for_url("**p=2*")


def test_a_form_can_be_filled_in_with_the_calendar(tab: Page, ada: UserProfile) -> None:
    task = make_entity(ada, "Order felt")
    tab.goto(change_url(task))
    tab.get_by_title("Choose a Date").click()
    tab.locator(".calendarbox").get_by_role("link", name="Today").click()
    tab.get_by_title("Choose a Time").click()
    tab.locator(".clockbox").get_by_role("link", name="Now").click()
    tab.get_by_role("button", name="Save", exact=True).click()
    tab.wait_for_url(f"**{list_url(Entity)}")
    task.refresh_from_db()
    assert task.due_at is not None


def test_pages_can_be_read_and_searched_without_scripts(log_in: Callable[..., Page], ada: UserProfile) -> None:
    session = talk(ada, 2, session_id="alpha")
    tab = log_in(java_script_enabled=False)
    tab.goto(list_url(Session))
    tab.locator("#searchbar").fill("alp")
    tab.locator("#searchbar").press("Enter")
    tab.get_by_role("link", name="alpha").click()
    tab.wait_for_url(f"**{change_url(session)}*")
    expect(tab.locator("#turn-1")).to_be_visible()


def test_an_operator_can_log_in_and_out(tab: Page) -> None:
    User.objects.create_user("eve", password="a-long-password", is_staff=True)
    tab.context.clear_cookies()
    tab.goto(reverse("admin:index"))
    tab.get_by_label("Username").fill("eve")
    tab.locator("input[name=password]").fill("wrong")
    tab.keyboard.press("Enter")
    expect(tab.locator("body")).to_contain_text("Please enter the correct username and password")
    tab.locator("input[name=password]").fill("a-long-password")
    tab.get_by_role("button", name="Log in").click()
    tab.get_by_role("button", name="eve").click()
    tab.get_by_role("button", name="Log out").click()
    expect(tab.locator("body")).to_contain_text("logged out")
