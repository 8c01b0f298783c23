"""The pages of streams and their items in a browser."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.operator.admin.stream import PAGE
from sessions_app.models import Session, UserProfile
from tests.browser.conftest import PHONE
from tests.support.pages import change_url, list_url
from tests.support.streams import fold, note
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """A session with its streams."""
    session = talk(ada, 4)
    MemoryStream.objects.ensure_for(session)
    return session


@pytest.fixture
def own(session: Session) -> MemoryStream:
    """The user stream of Ada, consolidated once."""
    stream = MemoryStream.objects.get(stream_type="user")
    note(stream, "Wants short answers.")
    note(stream, "Lives in Turin.")
    fold(stream)
    return stream


def test_the_content_of_an_item_is_the_widest_column_of_the_list(tab: Page, own: MemoryStream) -> None:
    note(own, "Felt wears out in a year, so it is covered anew each spring, before the fair.", "fact")
    tab.goto(list_url(MemoryAtom))
    cells = tab.locator("#result_list tbody tr").first.locator("td, th")
    widths = cells.evaluate_all("cells => cells.map(cell => [cell.offsetWidth, cell.className.split(' ')[0]])")
    assert max(widths)[1] == "field-content"


def test_an_operator_can_undo_a_merge_and_add_move_and_remove_a_fact(
    tab: Page, own: MemoryStream, session: Session
) -> None:
    tab.goto(change_url(own))
    expect(tab.get_by_role("region", name="Text", exact=True)).to_contain_text("Lives in Turin.")
    tab.get_by_text("Undo last merge…").click()
    tab.get_by_role("button", name="Undo last merge").click()
    expect(tab.get_by_text("the last merge was undone")).to_be_visible()
    expect(tab.get_by_role("region", name="Waiting observations")).to_contain_text("Lives in Turin.")

    tab.get_by_role("link", name="Add fact").click()
    tab.get_by_role("textbox", name="Content").fill("Felt wears out in a year.")
    tab.get_by_role("button", name="Save", exact=True).click()
    facts = tab.get_by_role("region", name="Facts")
    facts.get_by_role("link", name="Felt wears out in a year.").click()
    assert is_in_context(tab, session)
    tab.go_back()

    tab.get_by_label("Move to").select_option(label="text about session s1 of ada, agent default")
    tab.get_by_role("button", name="Move", exact=True).click()
    expect(tab.get_by_text("Moved to the text about session s1 of ada, agent default.")).to_be_visible()
    item = tab.url
    assert is_in_context(tab, session)

    tab.goto(item)
    tab.get_by_role("button", name="Remove from memory").click()
    expect(tab.get_by_text("Removed from memory. Contexts and searches no longer include it")).to_be_visible()
    assert not is_in_context(tab, session)


def is_in_context(tab: Page, session: Session) -> bool:
    """Return whether the preview of the session's context shows the fact."""
    tab.goto(f"/admin/sessions_app/session/{session.pk}/context/")
    expect(tab.get_by_label("The rendered context")).to_be_visible()
    return "Felt wears out in a year." in tab.content()


def test_more_facts_load_in_place_on_a_phone(log_in: Callable[..., Page], own: MemoryStream) -> None:
    for number in range(PAGE + 3):
        note(own, f"Fact number {number} of {'a long word' * 5}.", "fact")
    tab = log_in(viewport=PHONE)
    tab.goto(change_url(own))
    facts = tab.get_by_role("region", name="Facts").locator(".rem-item")
    expect(facts).to_have_count(PAGE)
    tab.get_by_role("link", name="Earlier items").click()
    expect(facts).to_have_count(PAGE + 3)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_an_operator_who_may_only_view_sees_no_buttons(log_in: Callable[..., Page], own: MemoryStream) -> None:
    tab = log_in("view_memorystream")
    tab.goto(change_url(own))
    expect(tab.get_by_role("button", name="Merge observations now")).to_have_count(0)


def test_items_can_be_filtered_by_person(tab: Page, own: MemoryStream, bo: UserProfile) -> None:
    note(own, "Felt wears out.", "fact")
    note(MemoryStream.objects.ensure_of_person(bo, "default"), "A jack is of wood.", "fact")
    tab.goto(list_url(MemoryAtom))
    tab.get_by_text("Filters").first.click()
    tab.get_by_label("By user_id").fill("bo")
    tab.get_by_role("button", name="Apply filters").click()
    expect(tab.get_by_role("link", name="A jack is of wood.")).to_be_visible()
    expect(tab.get_by_role("link", name="Felt wears out.")).to_have_count(0)
