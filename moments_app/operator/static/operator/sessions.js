// Scroll positions on the pages of a session, which HTML and HTMX can't set.
"use strict";

// A transcript opens at its newest turns, unless the URL names a turn.
function showNewest() {
    const scroller = document.querySelector(".rem-scroller[data-newest]");
    if (scroller && !location.hash) {
        scroller.scrollTop = scroller.scrollHeight;
    }
}

// When earlier turns are inserted above the visible turns, the visible turns keep their position.
function keepInSight(event) {
    const scroller = event.target.closest && event.target.closest(".rem-scroller");
    if (!scroller || !event.detail.requestConfig.elt.hasAttribute("data-earlier")) {
        return;
    }
    const fromEnd = scroller.scrollHeight - scroller.scrollTop;
    document.addEventListener("htmx:afterSwap", () => {
        scroller.scrollTop = scroller.scrollHeight - fromEnd;
    }, { once: true });
}

document.addEventListener("htmx:beforeSwap", keepInSight);
showNewest();
