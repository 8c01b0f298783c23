// The pages of a session: keeps the right turns in view, which HTML and HTMX can't do.
"use strict";

// A transcript opens at its newest turns, unless the URL names a turn.
function showNewest() {
    const scroller = document.querySelector(".rem-scroller[data-newest]");
    if (scroller && !location.hash) {
        scroller.scrollTop = scroller.scrollHeight;
    }
}

// Earlier turns are inserted above the visible ones, which keep their position.
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
