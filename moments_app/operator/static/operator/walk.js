// The left and right arrow keys follow a page's previous and next links, except in text fields.
document.addEventListener("keydown", (event) => {
    const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    const isPlain = !event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (!rel || !isPlain || event.target.closest("input, textarea, select, [contenteditable]")) return;
    const link = document.querySelector(`#main a[rel="${rel}"]`);
    if (link) {
        event.preventDefault();
        link.click();
    }
});
