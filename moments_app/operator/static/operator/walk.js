// The left and the right arrow follow a page's links to the previous and the next, unless something is being typed.
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
