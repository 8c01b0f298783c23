// Buttons that copy what a field holds: <button hidden data-copies="id of the field" aria-live="polite">Copy</button>.
// Without this script the buttons stay hidden, and the field can be copied by hand.
"use strict";

async function copy(field) {
    try {
        await navigator.clipboard.writeText(field.value);
        return true;
    } catch {
        field.focus(); // a page served over plain HTTP has no clipboard to write to, and copies what is selected
        field.select();
        return document.execCommand("copy");
    }
}

document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-copies]")) {
        const field = document.getElementById(button.dataset.copies);
        button.hidden = false;
        button.addEventListener("click", async () => {
            button.textContent = await copy(field) ? "Copied" : "Selected: copy it with the keyboard";
        });
    }
});
