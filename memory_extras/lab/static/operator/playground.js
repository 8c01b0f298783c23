// The playground: highlights the source turns of the line of memory that has the pointer or the focus. Without this
// script, the line's links lead to the turns.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
    for (const line of document.querySelectorAll("[data-lights]")) {
        const turns = line.dataset.lights.split(" ").map((number) => document.getElementById(`turn-${number}`)).filter(Boolean);
        const light = (isOn) => [line, ...turns].forEach((element) => element.classList.toggle("rem-lit", isOn && turns.length > 0));
        line.addEventListener("pointerenter", () => light(true));
        line.addEventListener("pointerleave", () => light(false));
        line.addEventListener("focusin", () => light(true));
        line.addEventListener("focusout", () => light(false));
    }
});
