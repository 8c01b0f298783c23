"""Retake the pictures of the docs from a new site with the demonstration: `make pictures`."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from memoryproject.conf import BASE_DIR
from memoryproject.demo import QUESTION
from tests.support import chromium
from tests.support.openai_server import OpenAIServer, content
from tests.support.running import Run
from tests.support.waiting import TIMEOUT

FOLDER = BASE_DIR / "docs" / "pictures"
USERS = "/admin/sessions_app/userprofile/"
TOLD = "My dog is called Rex, and we walk along the canal each morning."
ASKED = "What is my dog called?"
ANSWERS = {TOLD: "A fine start to the day for both of you.", ASKED: "Your dog is called Rex."}


def dashboard(page: Page) -> None:
    page.goto("/admin/")


def staff(page: Page) -> None:
    page.goto("/admin/auth/user/")


def session(page: Page) -> None:
    _open_session(page)
    page.goto(f"{page.url.partition('?')[0]}?at=40#turn-40")


def context(page: Page) -> None:
    _open_session(page)
    page.get_by_role("link", name="Context preview").first.click()
    page.get_by_label("Current message").fill(QUESTION)
    page.get_by_label("Budget, tokens").fill("1000")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("heading", name="Rendered text").wait_for(state="attached")


def person(page: Page) -> None:
    _open_person(page)


def chain(page: Page) -> None:
    _open_person(page)
    page.get_by_role("navigation", name="This person").get_by_role("link", name="Moments").click()
    page.get_by_role("heading", name="Source turns").first.wait_for()


def prompt(page: Page) -> None:
    page.goto("/admin/moments_app/promptresource/")
    page.get_by_role("link", name="Moment builder").first.click()


def recall(page: Page) -> None:
    page.goto("/admin/moments_app/memoryatom/recall/")
    page.get_by_label("User (user_id)").fill("demo-nora")
    page.get_by_label("Query").fill("shop on Linnégatan")
    page.get_by_role("button", name="Search", exact=True).last.click()
    page.get_by_role("heading", name="Words of the query").wait_for()


def playground(page: Page) -> None:
    page.goto(f"{USERS}playground/")
    page.locator("#rem-name").fill("tess")
    page.get_by_role("button", name="Chat", exact=True).click()
    for text in (TOLD, ASKED):
        page.get_by_label("Message as tess").fill(text)
        page.get_by_role("button", name="Send").click()
        page.get_by_text(ANSWERS[text]).first.wait_for()


def trace(page: Page) -> None:
    """Show the trace of the second question of the playground."""
    page.goto("/admin/sessions_app/session/?q=tess")
    page.locator("#result_list a[href*='/session/']").first.click()
    page.get_by_role("link", name="Trace of turn 2").click()
    page.get_by_role("heading", name="Question and answer").wait_for()


def _open_session(page: Page) -> None:
    page.goto("/admin/sessions_app/session/?q=demo-conversation")  # the demonstration's later session comes first
    page.locator("#result_list a[href*='/session/']").last.click()
    page.get_by_role("heading", name="Transcript").wait_for()


def _open_person(page: Page) -> None:
    page.goto(f"{USERS}?q=demo-nora")
    page.get_by_role("link", name="demo-nora").first.click()


# By file name: the function that opens the page, and the size of the picture.
PICTURES: dict[str, tuple[Callable[[Page], None], int, int]] = {
    "dashboard": (dashboard, 1280, 860),
    "people": (staff, 1100, 640),
    "session": (session, 1280, 800),
    "context": (context, 1280, 800),
    "person": (person, 1280, 860),
    "chain": (chain, 1280, 800),
    "prompt": (prompt, 1280, 800),
    "recall": (recall, 1280, 800),
    "playground": (playground, 1100, 640),
    "trace": (trace, 1280, 800),
}


def take(base_url: str, password: str) -> None:
    """Log in and write all pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        page = browser.new_context(base_url=base_url).new_page()
        page.set_default_timeout(TIMEOUT * 1_000)
        page.goto("/admin/")
        page.locator("#id_username").fill("operator")
        page.locator("#id_password").fill(password)
        page.locator("button[type=submit]").first.click()
        page.wait_for_url("**/admin/")
        for name, (show, width, height) in PICTURES.items():
            page.set_viewport_size({"width": width, "height": height})
            show(page)
            page.wait_for_load_state("networkidle")
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")
        browser.close()


def password_in(printed: str) -> str:
    """Return the operator's password in the output of `make run`."""
    found = re.search(r"operator, password (\S+)", printed)
    assert found, printed
    return found[1]


def main() -> None:
    chromium.fetch()
    with TemporaryDirectory() as folder, OpenAIServer() as upstream:
        upstream.queue(*map(content, ANSWERS.values()))
        os.environ |= {"CHAT__UPSTREAM_BASE_URL": upstream.base_url, "CHAT__UPSTREAM_API_KEY": "a-key"}
        run = Run(Path(folder) / "data").serve()
        try:
            take(f"http://127.0.0.1:{run.port}", password_in(run.printed))
        finally:
            run.stop()


if __name__ == "__main__":
    main()
