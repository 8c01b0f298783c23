// The pages of a session, where HTML and HTMX can't do it: which turns are in sight.
"use strict";

// A transcript opens at its newest turns, unless the address names one.
function showNewest() {
    const scroller = document.querySelector(".rem-scroller[data-newest]");
    if (scroller && !location.hash) {
        scroller.scrollTop = scroller.scrollHeight;
    }
}

// Earlier turns come in above those in sight, which stay where they are.
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
