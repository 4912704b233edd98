// The page: a history on one side, what each model makes of it on the other. Text only ever goes in as text.

const N = 10;
const REASONS = { copy: "copied", rerank: "reranked", explore: "explored", popular: "popular" };
const KEPT = "abaca.history";

const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const state = { models: [], examples: [], history: [], earlier: [], unknown: new Set(), turn: 0 };

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

class Refusal extends Error {
  constructor(status, detail, hint) {
    super(detail);
    Object.assign(this, { status, hint });
  }
}

// Whole numbers beyond 2^53 stay what they are, as far as the browser can tell: an id must come back unchanged.
const read = (text) =>
  JSON.parse(text, (name, value, { source } = {}) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value,
  );
const write = (value) =>
  JSON.stringify(value, (name, part) => (typeof part === "bigint" ? JSON.rawJSON(String(part)) : part));

/** Ask the server; a refusal carries its hint. */
async function ask(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem("abaca.token");
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && write(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server cannot be reached.", "Is it still running?");
  }
  const said = await answer.text().then(read).catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (!answer.ok) throw new Refusal(answer.status, said.detail ?? answer.statusText, said.hint ?? "");
  return said;
}

// ---------------------------------------------------------------- errors

function showError(error, retry) {
  if (error.name === "AbortError") return;
  byId("models").setAttribute("aria-busy", "false");
  if (error.status === 401) {
    byId("token-form").hidden = false;
    byId("token").focus();
  }
  const again = make("button", { type: "button" }, "Try again");
  again.addEventListener("click", retry);
  const text = make("p", {}, error.message, make("small", {}, error.hint ?? ""));
  byId("error").replaceChildren(text, again);
  byId("error").hidden = false;
}

function clearError() {
  byId("error").hidden = true;
  byId("token-form").hidden = true;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("abaca.token", byId("token").value.trim());
  clearError();
  begin();
});

// ---------------------------------------------------------------- the history

function setHistory(items) {
  state.earlier.push(state.history);
  state.history = items;
  refresh();
}

function drawHistory() {
  const { history, unknown } = state;
  const chips = history.map((item, place) => {
    const remove = make("button", { type: "button", "aria-label": `Remove ${item.title}`, title: "Remove" }, "×");
    remove.addEventListener("click", () => {
      setHistory(history.toSpliced(place, 1));
      (byId("history").querySelectorAll("button")[Math.max(place - 1, 0)] ?? byId("search")).focus();
    });
    const chip = make("li", {}, make("span", { title: item.title }, item.title), remove);
    if (unknown.has(item.id)) {
      chip.classList.add("unknown");
      chip.title = "No model knows this item";
    }
    return chip;
  });
  const list = byId("history");
  list.replaceChildren(...chips);
  list.scrollTop = list.scrollHeight;
  byId("empty").hidden = history.length > 0;
  byId("count").textContent = history.length ? `${history.length} items, oldest first` : "";
  byId("clear").disabled = !history.length;
  byId("undo").disabled = !state.earlier.length;
  sessionStorage.setItem(KEPT, write(history));
}

byId("clear").addEventListener("click", () => setHistory([]));
byId("undo").addEventListener("click", () => {
  state.history = state.earlier.pop() ?? [];
  refresh();
});

// ---------------------------------------------------------------- finding items

const found = { items: [], at: -1, words: null, wanted: false, timer: 0, asking: new AbortController() };

function search() {
  clearTimeout(found.timer);
  found.wanted = false;
  found.timer = setTimeout(async () => {
    found.asking.abort();
    found.asking = new AbortController();
    try {
      const words = byId("search").value;
      found.items = (await ask(`/items?${new URLSearchParams({ q: words, n: 12 })}`, null, found.asking.signal)).items;
      found.words = words;
      found.at = found.items.length && words ? 0 : -1;
      drawFound();
      if (found.wanted) chooseFound();
    } catch (error) {
      showError(error, search);
    }
  }, 120);
}

function drawFound() {
  const options = found.items.map((item, place) => {
    const option = make("li", { role: "option", id: `found-${place}`, "aria-selected": place === found.at }, item.title);
    if (String(item.id) !== item.title) option.append(" ", make("small", {}, String(item.id)));
    option.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      choose(item);
    });
    return option;
  });
  if (!options.length) options.push(make("li", { class: "none", role: "option", "aria-disabled": "true" }, "Nothing found"));
  byId("found").replaceChildren(...options);
  openFound(document.activeElement === byId("search"));
}

function openFound(open) {
  byId("found").hidden = !open;
  byId("search").setAttribute("aria-expanded", String(open));
  if (open && found.at >= 0) byId("search").setAttribute("aria-activedescendant", `found-${found.at}`);
  else byId("search").removeAttribute("aria-activedescendant");
  if (open) byId(`found-${found.at}`)?.scrollIntoView({ block: "nearest" });
}

/** Take the item that is marked; where the list is still that of other words, when theirs is here. */
function chooseFound() {
  found.wanted = found.words !== byId("search").value;
  if (!found.wanted && found.items[found.at]) choose(found.items[found.at]);
}

function choose(item) {
  byId("search").value = "";
  openFound(false);
  setHistory([...state.history, item]);
}

byId("search").addEventListener("input", search);
byId("search").addEventListener("focus", search);
byId("search").addEventListener("blur", () => openFound(false));
byId("search").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && found.items.length) {
    event.preventDefault();
    found.at = (found.at + step + found.items.length) % found.items.length;
    drawFound();
  } else if (event.key === "Enter" && (byId("search").value || !byId("found").hidden)) {
    event.preventDefault();
    chooseFound();
  } else if (event.key === "Escape") {
    openFound(false);
  } else if (event.key === "Backspace" && !byId("search").value && state.history.length) {
    setHistory(state.history.slice(0, -1));
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    byId("search").focus();
  }
});

// ---------------------------------------------------------------- users

function drawExamples() {
  const options = state.examples.map((example, place) => {
    const share = `${Math.round(example.repeat_share * 100)} % repeats`;
    return make("option", { value: place }, `${example.user} · ${example.items.length} items, ${share}`);
  });
  byId("examples").replaceChildren(make("option", { value: "" }, "Choose…"), ...options);
  byId("examples-label").hidden = !options.length;
}

byId("examples").addEventListener("change", () => {
  const example = state.examples[byId("examples").value];
  if (example) setHistory(example.items);
});
byId("user-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    clearError();
    const { user, items } = await ask(`/users/${encodeURIComponent(byId("user").value)}/history`);
    if (!items.length) throw new Refusal(404, `The server remembers nothing of user ${user}.`, "Send events to it with POST /events.");
    setHistory(items);
  } catch (error) {
    showError(error, () => byId("user-form").requestSubmit());
  }
});

// ---------------------------------------------------------------- recommendations

const policy = () => document.querySelector("[name=repeats]:checked").value;
for (const choice of document.querySelectorAll("[name=repeats]")) choice.addEventListener("change", refresh);

/** Ask every model about the history; only the latest answer is shown. */
async function refresh() {
  drawHistory();
  const turn = ++state.turn;
  byId("models").setAttribute("aria-busy", "true");
  const history = state.history.map((item) => item.id);
  try {
    const answers = await Promise.all(
      state.models.map(({ name }) => ask("/recommend", { history, n: N, repeats: policy(), model: name })),
    );
    if (turn !== state.turn) return;
    clearError();
    draw(answers.map((answer) => answer.answers[0]));
  } catch (error) {
    if (turn === state.turn) showError(error, refresh);
  }
}

function draw(answers) {
  const focus = focusedPlace();
  const before = places();
  const ids = new Set(state.history.map((item) => item.id));
  const unknown = answers.map((answer) => new Set(answer.unknown));
  state.unknown = new Set([...ids].filter((id) => unknown.every((names) => names.has(id))));
  if (state.unknown.size) drawHistory();
  const longest = Math.max(...answers.flatMap((answer) => answer.items.map((item) => item.probability ?? 0)), 1e-9);
  byId("models").replaceChildren(...answers.map((answer, which) => card(state.models[which], answer, longest)));
  byId("models").setAttribute("aria-busy", "false");
  drawBoth(answers);
  if (focus) document.querySelector(`[data-model="${focus[0]}"] li:nth-child(${focus[1]}) button`)?.focus();
  slide(before);
  byId("status").textContent = answers
    .map((answer, which) => `${state.models[which].name}: ${answer.items.length} recommendations`)
    .join("; ");
}

function card(model, answer, longest) {
  const rows = answer.items.map((item, place) => row(item, place, longest, answer.estimated));
  const element = make("article", { class: "card model", "aria-label": `Model ${model.name}` });
  element.dataset.model = state.models.indexOf(model);
  element.append(make("h2", {}, model.name), make("p", { class: "spec" }, `${model.encoder} · ${model.output}`));
  if (answer.repeat_probability !== null) element.append(share(answer.repeat_probability, answer.estimated));
  for (const text of notes(answer, model)) element.append(make("p", { class: "note" }, text));
  element.append(make("ol", { "aria-label": "Best first" }, ...rows));
  return element;
}

function share(probability, estimated) {
  const fill = make("i");
  fill.style.width = `${probability * 100}%`;
  return make(
    "div", { class: "share" },
    make("b", {}, percent(probability, estimated)),
    make("span", {}, "of the probability goes to items of the history"),
    make("div", { class: "meter", "aria-hidden": "true" }, fill),
  );
}

function notes(answer, model) {
  const said = [];
  const chosen = state.history.length > 0;
  if (answer.items[0]?.partition === "popular") {
    said.push(`${chosen ? "No item of the history is known" : "Nothing is chosen yet"}: these are the most popular items.`);
  } else if (!answer.items.length) {
    said.push(chosen ? "Nothing may be recommended under this policy." : "Without a history there is nothing to repeat.");
  }
  if (answer.unknown.length) said.push(`Not known to ${model.name}: ${answer.unknown.join(", ")}`);
  return said;
}

function row(item, place, longest, estimated) {
  const fill = make("i");
  fill.style.width = `${((item.probability ?? 0) / longest) * 100}%`;
  const why = item.reason.split(/[:·]\s*/).at(-1);
  const button = make(
    "button", { type: "button", title: "Add to the history" },
    make("span", { class: "place" }, `${place + 1}`),
    make("span", { class: "name" }, item.title, item.repeat ? "\u00a0↻" : ""),
    make("span", { class: "chance" }, item.probability === null ? "" : percent(item.probability, estimated)),
    make("span", { class: "bar", "aria-hidden": "true" }, fill),
    make("span", { class: "why" }, make("b", {}, REASONS[item.partition]), item.repeat ? ` · ${why}` : ""),
  );
  button.addEventListener("click", () => setHistory([...state.history, { id: item.id, title: item.title }]));
  const element = make("li", { class: item.partition }, button);
  element.dataset.id = write(item.id);
  for (const [event, on] of [["pointerenter", true], ["focusin", true], ["pointerleave", false], ["focusout", false]]) {
    element.addEventListener(event, () => mark(element, on));
  }
  return element;
}

/** Show where the other model has the same item. */
function mark(element, on) {
  for (const other of document.querySelectorAll(".model li")) {
    other.classList.toggle("same", on && other !== element && other.dataset.id === element.dataset.id);
  }
}

function drawBoth(answers) {
  const [one, other] = answers.map((answer) => new Set(answer.items.map((item) => item.id)));
  byId("both").textContent = other ? `${[...one].filter((id) => other.has(id)).length} items are on both lists` : "";
}

/** A probability for people; one that a search index estimated is marked. */
function percent(share, estimated) {
  const about = estimated ? "≈ " : "";
  if (share > 0 && share < 0.0001) return `${about}< 0.01 %`;
  return `${about}${(share * 100).toFixed(share < 0.01 ? 2 : share < 0.9995 ? 1 : 0)} %`;
}

// ---------------------------------------------------------------- what moved

function focusedPlace() {
  const row = document.activeElement?.closest(".model li");
  return row && [row.closest(".model").dataset.model, [...row.parentNode.children].indexOf(row) + 1];
}

const key = (row) => `${row.closest(".model").dataset.model} ${row.dataset.id}`;
const places = () => new Map([...document.querySelectorAll(".model li")].map((row) => [key(row), row.offsetTop]));

/** Let each row slide from where it was, and new ones come in. */
function slide(before) {
  if (calm.matches || !before.size) return;
  for (const row of document.querySelectorAll(".model li")) {
    const from = before.get(key(row));
    const frames = from === undefined
      ? [{ opacity: 0 }, { opacity: 1 }]
      : [{ transform: `translateY(${from - row.offsetTop}px)` }, { transform: "none" }];
    row.animate(frames, { duration: 320, easing: "cubic-bezier(.2, .8, .3, 1)" });
  }
}

// ---------------------------------------------------------------- begin

async function begin() {
  try {
    const about = await ask("/model");
    state.models = about.models;
    byId("user-form").hidden = !about.store;
    state.examples = (await ask("/examples")).examples;
    drawExamples();
    state.history = read(sessionStorage.getItem(KEPT) ?? "[]");
    await refresh();
  } catch (error) {
    showError(error, () => { clearError(); begin(); });
  }
}

begin();
