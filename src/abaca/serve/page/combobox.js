// A text field with a list of matches below it, for items and for users.

import { make } from "./server.js";

/**
 * `find(words, after, signal)` gives a page: its `entries`, and `next`, which is null at the end.
 * `show(entry)` gives the children of a row. With `marksFirst`, Enter chooses the first match.
 */
export function combobox(input, list, { find, show, choose, fail, marksFirst }) {
  let entries = [], next = null, at = -1, words = null, waiting = false, timer = 0, request = new AbortController();

  function search() {
    clearTimeout(timer);
    waiting = false;
    timer = setTimeout(() => load(null), 120);
  }

  async function load(after) {
    request.abort();
    request = new AbortController();
    const typed = input.value;
    try {
      const page = await find(typed, after, request.signal);
      entries = after === null ? page.entries : [...entries, ...page.entries];
      next = page.next;
      words = typed;
      if (after === null) at = marksFirst && typed && entries.length ? 0 : -1;
      draw();
      if (waiting) enter();
    } catch (error) {
      fail(error, search);
    }
  }

  function draw() {
    const contents = [...entries.map(show), ...(next === null ? [] : [["More…"]])];
    const rows = contents.map((children, place) => {
      const row = make("li", { role: "option", id: `${list.id}-${place}`, "aria-selected": place === at }, ...children);
      row.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        pick(place);
      });
      return row;
    });
    if (!rows.length) rows.push(make("li", { class: "none", role: "option", "aria-disabled": "true" }, "Nothing found"));
    list.replaceChildren(...rows);
    open(document.activeElement === input);
  }

  function open(shown) {
    list.hidden = !shown;
    input.setAttribute("aria-expanded", String(shown));
    const marked = shown && at >= 0 ? list.children[at] : null;
    if (marked) input.setAttribute("aria-activedescendant", marked.id);
    else input.removeAttribute("aria-activedescendant");
    marked?.scrollIntoView({ block: "nearest" });
  }

  function pick(place) {
    if (place >= entries.length) return load(next);
    const entry = entries[place];
    input.value = "";
    open(false);
    return choose(entry);
  }

  /** Choose the marked row; where the list belongs to earlier words, as soon as the new list is here. */
  function enter() {
    waiting = words !== input.value;
    if (!waiting && at >= 0) pick(at);
  }

  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const rows = entries.length + (next === null ? 0 : 1);
    if (step && rows) {
      event.preventDefault();
      at = at < 0 && step < 0 ? rows - 1 : (at + step + rows) % rows;
      draw();
    } else if (event.key === "Enter" && (marksFirst || (at >= 0 && words === input.value && !list.hidden))) {
      event.preventDefault();
      if (input.value || !list.hidden) enter();
    } else if (event.key === "Escape") {
      open(false);
    }
  });
}
