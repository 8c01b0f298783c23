// The prompt editor: line numbers next to the text, a warning before unsaved text is lost, and error messages of trials.
// The page works without this script.
"use strict";

(() => {
  const form = document.getElementById("rem-prompt");
  if (!form) {
    return;
  }
  const text = form.elements.content;
  const note = form.elements.note;
  const status = document.getElementById("rem-changed");
  const trial = document.getElementById("rem-trial");
  let leaving = false;

  // Behind the text is an invisible copy of its lines, each with its number. The copy wraps like the text, and gives the
  // box the height of the text.
  const numbers = document.createElement("div");
  numbers.className = "rem-numbers";
  numbers.setAttribute("aria-hidden", "true");
  text.before(numbers);
  text.parentElement.classList.add("rem-live-numbers");

  const number = () => {
    const lines = text.value.split("\n").map((line) => {
      const row = document.createElement("div");
      row.textContent = line || " ";
      return row;
    });
    numbers.replaceChildren(...lines);
  };

  const isChanged = () => "unsaved" in form.dataset || text.value !== text.defaultValue || note.value !== note.defaultValue;

  const changed = () => {
    status.textContent = isChanged() ? "Not saved yet." : "";
  };

  text.addEventListener("input", number);
  form.addEventListener("input", changed);
  form.addEventListener("submit", () => {
    leaving = true;
  });
  window.addEventListener("beforeunload", (event) => {
    if (!leaving && isChanged()) {
      event.preventDefault();
    }
  });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (trial && event.detail.target === trial) {
      trial.replaceChildren();
    }
  });
  const failed = (event) => {
    const told = document.createElement("p");
    told.className = "rem-problem";
    told.setAttribute("role", "alert");
    const code = event.detail.xhr.status;
    told.textContent = code ? `The server answered with status ${code}.` : "The server can't be reached.";
    event.detail.target.replaceChildren(told);
  };
  document.body.addEventListener("htmx:responseError", failed);
  document.body.addEventListener("htmx:sendError", failed);
  number();
  changed();
})();
