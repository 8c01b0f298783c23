// Buttons that copy the value of a field: <button hidden data-copies="id of the field" aria-live="polite">Copy</button>.
// Without this script, the buttons stay hidden and people copy the field by hand.
"use strict";

async function copy(field) {
    try {
        await navigator.clipboard.writeText(field.value);
        return true;
    } catch {
        field.focus(); // a page served over plain HTTP can't write to the clipboard, but can copy the selection
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
