"""An operator without a mouse: where Tab leads, whether the focus is visible, and how many keys it takes."""

from typing import Any

from playwright.sync_api import Page, expect

STOPS = 40  # maximum on a page, after its frame
PARTS = 5  # stops of a date field, plus one
SKIP = "Skip to main content"

_IS_PAST = "() => location.hash !== '' || document.getElementById('main').contains(document.activeElement)"
# The problem with the focus: on nothing, out of sight, covered, or not marked. A wrapper may have the mark. The browser
# itself marks the parts of a date.
_PROBLEM = """() => {
    const it = document.activeElement;
    if (!it || it === document.body) return "nothing has the focus";
    const marked = (one) => {
        const style = getComputedStyle(one);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    };
    const wrappers = [it, it.parentElement, it.parentElement?.parentElement].filter(Boolean);
    if (it.type !== "date" && !wrappers.some(marked)) return "nothing shows the focus";
    const box = it.getBoundingClientRect();
    const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
    const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, innerHeight);
    if (right - left < 1 || bottom - top < 1) return "the focus is out of sight";
    const points = [[left + 2, top + 2], [(left + right) / 2, (top + bottom) / 2], [right - 2, bottom - 2]];
    const there = points.map(([x, y]) => document.elementFromPoint(x, y)).filter(Boolean);
    return there.some((one) => it.contains(one) || one.contains(it)) ? "" : "something covers the focus";
}"""


class Keyboard:
    """The keys that an operator presses in a tab.

    The focus is checked at each stop of Tab: it must be on an element that is in sight, uncovered and marked.

    Attributes:
        stops: how often Tab was pressed so far.
    """

    def __init__(self, tab: Page) -> None:
        self.stops = 0
        self._tab = tab
        self._session = tab.context.new_cdp_session(tab)

    def skip(self) -> None:
        """Skip the frame of a new page, unless its URL or a focused field is already past it."""
        self._wait_until_shown()
        if not self._tab.evaluate(_IS_PAST):
            self.press_on(SKIP)
            expect(self._tab.get_by_role("main")).to_be_focused()

    def to(self, name: str, *, keys: str = "Tab") -> None:
        """Press Tab, or the keys, until an element whose name starts like this has the focus.

        Raises:
            AssertionError: it takes too many stops, or the focus has a problem at one of them.
        """
        self._wait_until_shown()
        passed: list[str] = []
        for _ in range(STOPS):
            self._tab.keyboard.press(keys)
            self.stops += 1
            passed.append(self.name())
            problem = self._tab.evaluate(_PROBLEM)
            assert not problem, f"{self._tab.url}: {problem} at {passed[-1]!r}, behind {passed[-4:-1]}"
            assert len({*passed[-PARTS:]}) > 1 or len(passed) < PARTS, (
                f"{self._tab.url}: {passed[-1]!r} keeps the focus"
            )
            if passed[-1].startswith(name):
                return
        raise AssertionError(f"{self._tab.url}: {STOPS} stops don't lead to {name!r}: {passed}")

    def press_on(self, name: str, key: str = "Enter") -> None:
        """Go to the element with this name, and press a key."""
        self.to(name)
        self._tab.keyboard.press(key)

    def fill(self, name: str, text: str) -> None:
        """Go to a field, unless it already has the focus, and replace its content."""
        if not self.name().startswith(name):
            self.to(name)
        self._tab.keyboard.press("Control+a")
        self._tab.keyboard.type(text)

    def open(self, name: str) -> None:
        """Open a page by its name, from any page."""
        self._tab.keyboard.press("Control+k")
        self._tab.keyboard.type(name)
        expect(self._tab.locator("#command-results-list li").first).to_contain_text(name)
        self._tab.keyboard.press("Enter")
        expect(self._tab.get_by_role("heading", level=1)).to_contain_text(name)

    def name(self) -> str:
        """Return the name by which a screen reader announces the focused element."""
        focused: Any = self._session.send("Runtime.evaluate", {"expression": "document.activeElement"})
        asked = {"objectId": focused["result"]["objectId"], "fetchRelatives": False}
        tree = self._session.send("Accessibility.getPartialAXTree", asked)
        return str(tree["nodes"][0].get("name", {}).get("value", ""))

    def _wait_until_shown(self) -> None:
        """Wait until the page is shown: Tab leads nowhere on a page that is still cloaked."""
        self._tab.wait_for_load_state()
        expect(self._tab.locator("html[x-cloak]")).to_have_count(0)
        self._tab.evaluate("() => new Promise((done) => setTimeout(done))")  # after the script that sets the focus
