"""An operator without a mouse: where Tab leads, whether one sees where one is, and how many keys it takes."""

from typing import Any

from playwright.sync_api import Page, expect

STOPS = 40  # on a page, past its frame, to what one wants there
PARTS = 5  # of a field for a date, each a stop, and one more
SKIP = "Skip to the page"

_IS_PAST = "() => location.hash !== '' || document.getElementById('main').contains(document.activeElement)"
# Where the focus is: on nothing, out of sight, behind something else, or without a mark. A wrapper may wear the mark;
# the browser itself marks the parts of a date.
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

    Each stop of Tab is looked at: the focus has to be on something, in sight, uncovered and marked.

    Attributes:
        stops: how often Tab was pressed so far.
    """

    def __init__(self, tab: Page) -> None:
        self.stops = 0
        self._tab = tab
        self._session = tab.context.new_cdp_session(tab)

    def skip(self) -> None:
        """Go past the frame of a new page, unless its address or a field that has the focus is past it already."""
        self._tab.wait_for_load_state()
        expect(self._tab.locator("html[x-cloak]")).to_have_count(0)
        self._tab.evaluate("() => new Promise((done) => setTimeout(done))")  # behind what gives a field the focus
        if not self._tab.evaluate(_IS_PAST):
            self.press_on(SKIP)
            expect(self._tab.get_by_role("main")).to_be_focused()

    def to(self, name: str, *, keys: str = "Tab") -> None:
        """Press Tab, or else the keys, until what has this name, or one that begins so, has the focus.

        Raises:
            AssertionError: it takes too many stops, or one of them is not as it should be.
        """
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
        """Go to what has this name, and press a key on it."""
        self.to(name)
        self._tab.keyboard.press(key)

    def fill(self, name: str, text: str) -> None:
        """Go to a field, unless the page has given it the focus, and type over what it holds."""
        if not self.name().startswith(name):
            self.to(name)
        self._tab.keyboard.press("Control+a")
        self._tab.keyboard.type(text)

    def open(self, name: str) -> None:
        """Go to a page by its name, from anywhere."""
        self._tab.keyboard.press("Control+k")
        self._tab.keyboard.type(name)
        expect(self._tab.locator("#command-results-list li").first).to_contain_text(name)
        self._tab.keyboard.press("Enter")
        expect(self._tab.get_by_role("heading", level=1)).to_contain_text(name)

    def name(self) -> str:
        """Return what a screen reader calls that which has the focus."""
        focused: Any = self._session.send("Runtime.evaluate", {"expression": "document.activeElement"})
        asked = {"objectId": focused["result"]["objectId"], "fetchRelatives": False}
        tree = self._session.send("Accessibility.getPartialAXTree", asked)
        return str(tree["nodes"][0].get("name", {}).get("value", ""))
