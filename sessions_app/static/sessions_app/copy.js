// Buttons that copy what a field holds: <button hidden data-copies="id of the field">Copy</button>.
// Without this script the buttons stay hidden, and the field can be copied by hand.
document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-copies]")) {
        const field = document.getElementById(button.dataset.copies);
        button.hidden = false;
        button.addEventListener("click", async () => {
            field.select();
            try {
                await navigator.clipboard.writeText(field.value);
            } catch {
                document.execCommand("copy"); // where the page is served over plain HTTP
            }
            button.textContent = "Copied";
        });
    }
});
