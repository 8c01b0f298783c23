/* The frame around each page, under a strict Content-Security-Policy: docs/decisions/0012. */
"use strict";

// Alpine's build for such a policy parses expressions itself and has no access to `window`. So this file registers the
// names that unfold's templates use.
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
    // Only the properties that expressions in forms and pages use.
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

// The search for names. Unfold's version appears with the next frame and focuses its field after 20 ms. Anything typed
// before that is lost, and if no frame was drawn by then, so is all the rest. Ours listens from the shortcut on.
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

// Django's choice boxes have hints that are an icon with a label. Without a role, screen readers skip the label.
window.addEventListener("load", () => requestAnimationFrame(() => {
  document.querySelectorAll(".help-tooltip[aria-label]").forEach((hint) => hint.setAttribute("role", "img"));
}));

// An icon is a word that its font draws. Without this, screen readers read the word: "forum Sessions".
function hideIcons(root) {
  root.querySelectorAll(".material-symbols-outlined:not([aria-hidden], [aria-label])").forEach((icon) => icon.setAttribute("aria-hidden", "true"));
}
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("a.related-lookup").forEach((link) => link.setAttribute("aria-label", "Look up"));
  hideIcons(document);
});
document.addEventListener("htmx:load", (event) => hideIcons(event.detail.elt));
