/* Scripts for every admin page. They work with a strict Content-Security-Policy (docs/decisions/0018). */
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

// Browsers don't focus hidden fields, and the page is hidden until Alpine has loaded. Without this, the first characters
// that are typed while scripts load slowly would be lost.
document.addEventListener("alpine:initialized", () => setTimeout(() => {
  if (document.activeElement === document.body && !location.hash) {
    document.querySelector("[autofocus]")?.focus();
  }
}));

// The search for names. Unfold's version appears with the next frame and focuses its field after 20 ms. Anything typed
// before that is lost. If no frame has been drawn by then, everything typed later is lost, too. This version focuses the
// field immediately. Enter opens the first result unless an arrow key has selected another one, even before the results
// have loaded. When the search is closed, the focus returns to its previous place.
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
  // Tab moves to the results, and then to the page. Then the search closes, so that it doesn't cover the page.
  command.handleLeaving = function (event) {
    if (this.openCommandResults && event.relatedTarget && !this.$root.contains(event.relatedTarget)) {
      this.handleOutsideClick();
    }
  };
  return command;
}

// The hints of Django's choice boxes are icons with a label. Without a role, screen readers skip the label.
window.addEventListener("load", () => requestAnimationFrame(() => {
  document.querySelectorAll(".help-tooltip[aria-label]").forEach((hint) => hint.setAttribute("role", "img"));
  hideIcons(document);  // of the calendar and the clock, which Django adds after loading
}));

// An icon is a word that the icon font renders as a picture. Without `aria-hidden`, screen readers read "forum Sessions".
function hideIcons(root) {
  root.querySelectorAll(".material-symbols-outlined:not([aria-hidden], [aria-label])").forEach((icon) => icon.setAttribute("aria-hidden", "true"));
}
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("a.related-lookup").forEach((link) => link.setAttribute("aria-label", "Look up"));
  hideIcons(document);
});
document.addEventListener("htmx:load", (event) => hideIcons(event.detail.elt));
