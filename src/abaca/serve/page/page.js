// The page: a history on one side, the recommendations of each model on the other. The address holds all of it.

import { card } from "./cards.js";
import { combobox } from "./combobox.js";
import { Refusal, ask, byId, make, read, write } from "./server.js";

const LOOKED_UP = 100; // ids of one request for titles

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const state = { models: [], examples: [], history: [], earlier: [], unknown: new Set(), open: new Set(), turn: 0 };

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

const add = (item) => setHistory([...state.history, item]);

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
}

byId("clear").addEventListener("click", () => setHistory([]));
byId("undo").addEventListener("click", () => {
  state.history = state.earlier.pop() ?? [];
  refresh();
});

byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(location.href);
  byId("status").textContent = byId("copy").textContent = "Link copied";
  setTimeout(() => { byId("copy").textContent = "Copy link"; }, 1500);
});
byId("copy").hidden = !navigator.clipboard;

combobox(byId("search"), byId("found"), {
  marksFirst: true,
  find: async (q, after, signal) => {
    const { items } = await ask(`/items?${new URLSearchParams({ q, n: 12 })}`, null, signal);
    return { entries: items, next: null };
  },
  show: ({ id, title }) => (String(id) === title ? [title] : [title, " ", make("small", {}, String(id))]),
  choose: add,
  fail: showError,
});
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Backspace" && !byId("search").value && state.history.length) setHistory(state.history.slice(0, -1));
});
document.addEventListener("keydown", (event) => {
  const types = document.activeElement.matches("input:not([type=radio], [type=number])");
  if (event.key === "/" && !types && !event.ctrlKey && !event.metaKey) {
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
combobox(byId("user"), byId("users"), {
  find: async (q, after, signal) => {
    const page = await ask(`/users?${new URLSearchParams({ q, n: 12, after: after ?? "" })}`, null, signal);
    return { entries: page.users, next: page.next };
  },
  show: (user) => [user],
  choose: loadUser,
  fail: showError,
});
byId("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  loadUser(byId("user").value);
});

async function loadUser(name) {
  byId("user").value = name;
  try {
    clearError();
    const { user, items } = await ask(`/users/${encodeURIComponent(name)}/history`);
    if (!items.length) throw new Refusal(404, `No events of user ${user} are stored.`, "Send events with POST /events.");
    setHistory(items);
  } catch (error) {
    showError(error, () => loadUser(name));
  }
}

// ---------------------------------------------------------------- the address

const policy = () => document.querySelector("[name=repeats]:checked").value;
const ids = () => state.history.map((item) => item.id);

/** After the # of the address, which browsers do not send: history, n, repeats, and a model where one was chosen. */
function writeAddress() {
  const fields = new URLSearchParams({ history: write(ids()), n: byId("n").value, repeats: policy() });
  if (byId("model").value) fields.set("model", byId("model").value);
  window.history.replaceState(null, "", `#${fields}`);
}

/** Fill the form from the address at once: what is chosen while models and titles load stays chosen. */
function readAddress(fields) {
  let listed;
  try {
    listed = read(fields.get("history") ?? "[]");
    if (!Array.isArray(listed)) throw new TypeError("not a list");
  } catch {
    throw new Refusal(0, "The history in the address cannot be read.", "Was the link cut off?");
  }
  byId("n").value = fields.get("n") ?? 10;
  const repeats = [...document.querySelectorAll("[name=repeats]")];
  (repeats.find((choice) => choice.value === fields.get("repeats")) ?? repeats[0]).checked = true;
  state.history = listed.map((id) => ({ id, title: String(id) }));
}

function chooseModel(name) {
  byId("model").value = name;
  if (byId("model").selectedIndex < 0) {
    byId("model").value = "";
    throw new Refusal(0, `No model named ${name} is served.`, "Choose a model below.");
  }
}

/** Give the items of the history their titles; an unknown id is its own title. */
async function nameHistory() {
  const names = [...new Set(ids().map(String))];
  const titles = new Map();
  for (let start = 0; start < names.length; start += LOOKED_UP) {
    const query = new URLSearchParams(names.slice(start, start + LOOKED_UP).map((id) => ["id", id]));
    for (const { id, title } of (await ask(`/items?${query}`)).items) titles.set(String(id), title);
  }
  state.history = state.history.map(({ id, title }) => ({ id, title: titles.get(String(id)) ?? title }));
}

// ---------------------------------------------------------------- recommendations

const shown = () => state.models.filter(({ name }) => [name, ""].includes(byId("model").value));
for (const choice of document.querySelectorAll("[name=repeats], #n, #model")) choice.addEventListener("change", refresh);

/** Recommend by every model that is shown; only the latest answer is drawn. */
async function refresh() {
  drawHistory();
  if (!state.models.length) return; // still loading: begin() refreshes in the end
  writeAddress();
  const turn = ++state.turn;
  byId("models").setAttribute("aria-busy", "true");
  const question = { history: ids(), n: Number(byId("n").value), repeats: policy() };
  const models = shown();
  try {
    const answers = await Promise.all(models.map(({ name }) => ask("/recommend", { ...question, model: name })));
    if (turn !== state.turn) return;
    clearError();
    draw(models, answers.map((answer) => answer.answers[0]));
  } catch (error) {
    if (turn === state.turn) showError(error, refresh);
  }
}

function draw(models, answers) {
  const focus = focusedPlace();
  const before = places();
  const unknown = answers.map((answer) => new Set(answer.unknown));
  state.unknown = new Set(ids().filter((id) => unknown.every((names) => names.has(id))));
  if (state.unknown.size) drawHistory();
  const longest = Math.max(...answers.flatMap((answer) => answer.items.map((item) => item.probability ?? 0)), 1e-9);
  const view = { longest, chosen: state.history.length > 0, open: state.open, add };
  byId("models").replaceChildren(...answers.map((answer, which) => card(models[which], answer, view)));
  byId("models").setAttribute("aria-busy", "false");
  drawBoth(answers);
  byId("parts").hidden = !answers.some((answer) => answer.items.some((item) => item.argued_by));
  if (focus) document.querySelectorAll(".model")[focus[0]]?.querySelectorAll("li button")[focus[1]]?.focus();
  slide(before);
  byId("status").textContent = answers
    .map((answer, which) => `${models[which].name}: ${answer.items.length} recommendations`)
    .join("; ");
}

function drawBoth(answers) {
  const [one, other] = answers.map((answer) => new Set(answer.items.map((item) => item.id)));
  byId("both").textContent = other ? `${[...one].filter((id) => other.has(id)).length} items are on both lists` : "";
}

// ---------------------------------------------------------------- movement

function focusedPlace() {
  const row = document.activeElement?.closest(".model li");
  const place = (element) => [...element.parentNode.children].indexOf(element);
  return row && [place(row.closest(".model")), place(row)];
}

const key = (row) => `${row.closest(".model").dataset.model} ${row.dataset.id}`;
const places = () => new Map([...document.querySelectorAll(".model li")].map((row) => [key(row), row.offsetTop]));

/** Rows slide from their old places; new ones fade in. */
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
  const fields = new URLSearchParams(location.hash.slice(1));
  try {
    readAddress(fields);
    const about = await ask("/model");
    state.models = about.models;
    byId("user-form").hidden = !about.store;
    state.examples = (await ask("/examples")).examples;
    drawExamples();
    const all = make("option", { value: "" }, "All");
    byId("model").replaceChildren(all, ...state.models.map(({ name }) => make("option", { value: name }, name)));
    byId("model-label").hidden = state.models.length < 2;
    chooseModel(fields.get("model") ?? "");
    await nameHistory();
    await refresh();
  } catch (error) {
    showError(error, () => { clearError(); begin(); });
  }
}

addEventListener("hashchange", begin); // another link was opened in this tab
begin();
