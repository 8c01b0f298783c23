"""The pages of a session in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from moments_app.models import Job, Moment
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.browser.conftest import PHONE
from tests.support.jobs import build, work_off
from tests.support.pages import change_url, list_url
from tests.support.transcript import talk, turns

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def built(ada: UserProfile) -> Session:
    """A session of 250 turns, the older of them in moments. Turn 30 is about a harpsichord."""
    batch = turns(250)
    batch[30] = NewMessage("user", "The harpsichord came from Lyon, in a crate.", created_at=batch[30].created_at)
    session = append(ada, "s1", batch).session
    assert build(session).status == Job.Status.COMPLETED
    session.refresh_from_db()
    return session


def in_sight(tab: Page, sequence: int) -> bool:
    """Return whether a turn is in the visible part of the transcript."""
    return bool(
        tab.evaluate(
            """(id) => {
                const turn = document.getElementById(id).getBoundingClientRect();
                const shown = document.querySelector(".rem-scroller").getBoundingClientRect();
                return turn.top < shown.bottom && turn.bottom > shown.top;
            }""",
            f"turn-{sequence}",
        )
    )


def scroll(tab: Page, *, to_end: bool) -> None:
    tab.locator(".rem-scroller").evaluate("(box, end) => { box.scrollTop = end ? box.scrollHeight : 0; }", to_end)


class TestReading:
    """The transcript."""

    def test_the_transcript_opens_at_the_newest_turns_and_loads_earlier_ones_on_scrolling(
        self, tab: Page, built: Session
    ) -> None:
        tab.goto(change_url(built))
        expect(tab.locator("#turn-249")).to_contain_text("Turn 249 is about")
        assert in_sight(tab, 249)
        expect(tab.locator("#turn-149")).to_have_count(0)
        scroll(tab, to_end=False)
        expect(tab.locator("#turn-50")).to_have_count(1)
        assert in_sight(tab, 150)  # the reading position has not moved
        scroll(tab, to_end=False)
        expect(tab.locator("#turn-0")).to_have_count(1)
        expect(tab.get_by_role("link", name="Earlier turns")).to_have_count(0)
        assert tab.locator(".rem-entry[id]").count() == 250

    def test_scrolling_from_the_middle_loads_later_turns_too(self, tab: Page, built: Session) -> None:
        tab.goto(change_url(built))
        tab.get_by_label("Go to turn").fill("60")
        tab.get_by_role("button", name="Go", exact=True).click()
        expect(tab).to_have_url(re.compile(r"\?at=60#turn-60$"))
        assert in_sight(tab, 60)
        scroll(tab, to_end=True)
        expect(tab.locator("#turn-209")).to_have_count(1)
        scroll(tab, to_end=True)
        expect(tab.locator("#turn-249")).to_have_count(1)
        assert len(set(tab.locator(".rem-entry[id]").evaluate_all("all => all.map((one) => one.id)"))) == 240

    def test_no_page_is_wider_than_the_screen_of_a_phone(self, log_in: Callable[..., Page], built: Session) -> None:
        append(built.user, "s1", [NewMessage("user", "w" * 500)])
        tab = log_in(viewport=PHONE)
        for name in ("change", "summaries", "memory", "jobs", "contexts", "context", "trace", "rebuild", "retract"):
            tab.goto(change_url(built).replace("/change/", f"/{name}/"))
            assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name


class TestJourneys:
    """The tasks of an operator."""

    def test_an_operator_can_find_out_why_the_model_said_something(self, tab: Page, built: Session) -> None:
        talk(built.user, 4, session_id="another")
        tab.goto(list_url(Session))
        tab.get_by_placeholder("Start of").fill("harpsichords")
        tab.keyboard.press("Enter")
        expect(tab.locator("#result_list tbody tr")).to_have_count(1)
        tab.get_by_role("link", name="Turn 30").click()
        expect(tab.locator("#turn-30")).to_contain_text("came from Lyon")
        tab.get_by_role("link", name="Trace of turn 30").click()
        expect(tab.get_by_role("heading", name="Question", exact=True)).to_be_visible()
        expect(tab.locator(".rem-turn.rem-user").first).to_contain_text("The harpsichord came from Lyon, in a crate.")
        moment = Moment.objects.get(first_sequence__lte=30, last_sequence__gte=30)
        retrieved = tab.get_by_role("region", name="retrieved").get_by_title(moment.uri)
        expect(retrieved).to_have_text(re.compile("^moment, "))
        retrieved.click()
        tab.get_by_role("link", name="view in session").click()
        expect(tab.locator(".rem-marked")).to_have_count(moment.last_sequence - moment.first_sequence + 1)
        assert in_sight(tab, moment.first_sequence)

    def test_a_button_copies_the_context(self, log_in: Callable[..., Page], built: Session) -> None:
        tab = log_in(permissions=["clipboard-read", "clipboard-write"])
        tab.goto(change_url(built).replace("/change/", "/context/"))
        tab.get_by_role("button", name="Copy").click()
        expect(tab.get_by_role("button", name="Copied")).to_be_visible()
        assert "<MemoryContext>" in tab.evaluate("navigator.clipboard.readText()")

    def test_the_button_also_works_over_plain_http(self, log_in: Callable[..., Page], built: Session) -> None:
        tab = log_in(permissions=["clipboard-read", "clipboard-write"])
        tab.add_init_script("Object.defineProperty(navigator.clipboard, 'writeText', {value: undefined})")
        tab.goto(change_url(built).replace("/change/", "/context/"))
        tab.get_by_role("button", name="Copy").click()
        expect(tab.get_by_role("button", name="Copied")).to_be_visible()
        assert "<MemoryContext>" in tab.evaluate("navigator.clipboard.readText()")

    def test_an_operator_can_rebuild_the_moments_of_a_session(self, tab: Page, built: Session) -> None:
        before = set(built.moments.values_list("pk", flat=True))
        tab.goto(change_url(built))
        tab.get_by_role("link", name="Rebuild moments…").click()
        tab.get_by_role("button", name=f"Rebuild {len(before)} moments").click()
        expect(tab.get_by_text("Queued a rebuild of the moments").first).to_be_visible()
        work_off()
        tab.goto(change_url(built).replace("/change/", "/jobs/"))
        expect(tab.get_by_role("row", name="Rebuild moments").first).to_contain_text("Completed")
        assert built.moments.exists() and not before & set(built.moments.values_list("pk", flat=True))

    def test_an_operator_can_retract_a_turn_after_a_preview_and_undo_it(self, tab: Page, built: Session) -> None:
        moment = Moment.objects.get(first_sequence__lte=30, last_sequence__gte=30)
        tab.goto(f"{change_url(built)}?at=30#turn-30")
        expect(tab.get_by_role("button", name="Retract selected turns…")).to_be_hidden()
        tab.get_by_label("Select turn 30").check()
        tab.get_by_role("button", name="Retract selected turns…").click()
        expect(tab.get_by_role("region", name="1 turn and everything derived from it")).to_contain_text(moment.name)
        tab.get_by_label("Reason").fill("planted")
        tab.get_by_role("button", name="Retract 1 turn").click()
        tab.get_by_role("link", name="Withdrawn items").press("Enter")
        expect(tab.get_by_role("heading", name="Withdrawn items")).to_be_visible()
        tab.get_by_role("link", name="view turns in session").click()
        expect(tab.locator("#turn-30.rem-retracted")).to_be_visible()
        tab.locator("#turn-30").get_by_role("link", name="retracted").click()
        tab.get_by_text("Undo…").click()
        tab.get_by_role("button", name="Undo this retraction").click()
        expect(tab.get_by_text("is undone").first).to_be_visible()
        assert Moment.objects.filter(pk=moment.pk).exists()
        assert not built.messages.exclude(retracted_at=None).exists()
