/* Scripts for every admin page, under a strict Content-Security-Policy: docs/decisions/0018. */
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

// The page is hidden until Alpine is there, and a field that is hidden gets no focus by itself: where scripts took long,
// what one typed at once was lost.
document.addEventListener("alpine:initialized", () => setTimeout(() => {
  if (document.activeElement === document.body && !location.hash) {
    document.querySelector("[autofocus]")?.focus();
  }
}));

// The search for names. Unfold's version appears with the next frame and focuses its field after 20 ms. Anything typed
// before that is lost, and if no frame was drawn by then, so is all the rest. Ours listens from the shortcut on. Enter
// opens the first result where no arrow key chose another, also before the results are there; when the search is closed,
// the focus returns to where it was.
function listeningCommand() {
  const command = searchCommand();
  const { handleOpen, handleEscape, handleContentLoaded, selectItem } = command;
  command.handleOpen = function () {
    this.cameFrom = document.activeElement;
    this.isAwaited = false;
    handleOpen.call(this);
    this.$root.style.removeProperty("display");
    this.$refs.searchInputCommand.focus();
  };
  command.handleEscape = function () {
    handleEscape.call(this);
    if (!this.openCommandResults) {
      this.cameFrom.focus();
    }
  };
  command.selectItem = function () {
    this.isAwaited = !this.hasResults;
    if (this.hasResults) {
      this.currentIndex = this.currentIndex || 1;
      selectItem.apply(this, arguments);
    }
  };
  command.handleContentLoaded = function (event) {
    handleContentLoaded.call(this, event);
    if (this.isAwaited && this.hasResults) {
      this.selectItem();
    }
  };
  // Tab goes on to the results, and past them to the page, which the search must not cover then.
  command.handleLeaving = function (event) {
    if (this.openCommandResults && event.relatedTarget && !this.$root.contains(event.relatedTarget)) {
      this.handleOutsideClick();
    }
  };
  return command;
}

// Django's choice boxes have hints that are an icon with a label. Without a role, screen readers skip the label.
window.addEventListener("load", () => requestAnimationFrame(() => {
  document.querySelectorAll(".help-tooltip[aria-label]").forEach((hint) => hint.setAttribute("role", "img"));
  hideIcons(document);  // those of the calendar and the clock, which Django adds when all is loaded
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
