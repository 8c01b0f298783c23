/* What surrounds each page, under a strict Content-Security-Policy: docs/decisions/0012. */
"use strict";

// Alpine's build for such a policy reads expressions itself and finds nothing of `window` in them. So here is what
// unfold's templates name.
document.addEventListener("alpine:init", () => {
  Alpine.data("theme", theme);
  Alpine.data("searchForm", searchForm);
  Alpine.data("searchDropdown", searchDropdown);
  Alpine.data("searchCommand", listeningCommand);

  // The whole page: `unfold/layouts/skeleton.html`.
  Alpine.data("page", (firstTab) => ({
    activeTab: getCurrentTab() || firstTab,
    sidebarMobileOpen: false,
    sidebarDesktopOpen: localStorage.getItem("sidebarDesktopOpen") !== "0",
    // As much of it as expressions of forms and pages use.
    window: {
      location: {
        get pathname() { return location.pathname; },
        get search() { return location.search; },
        get hash() { return location.hash; },
        set href(address) { location.assign(address); },
      },
    },
    init() {
      this.$watch("sidebarDesktopOpen", (open) => localStorage.setItem("sidebarDesktopOpen", open ? "1" : "0"));
    },
  }));
});

// The search for names. Unfold's shows itself with the next frame and puts the focus on its field after 20 ms: what is
// typed before goes nowhere, and if no frame was drawn by then, so does all the rest. Ours listens from the shortcut on.
function listeningCommand() {
  const command = searchCommand();
  const open = command.handleOpen;
  command.handleOpen = function () {
    open.call(this);
    this.$root.style.removeProperty("display");
    this.$refs.searchInputCommand.focus();
  };
  return command;
}

// Django's boxes of choices have hints that are an icon with a label: without a role nobody is told it.
window.addEventListener("load", () => requestAnimationFrame(() => {
  document.querySelectorAll(".help-tooltip[aria-label]").forEach((hint) => hint.setAttribute("role", "img"));
}));
