// The card of a model: its numbers, the share of repeats, and its recommendations.

import { make, write } from "./server.js";
import { largest, terms } from "./terms.js";

const SCORED = { copy: "copied", rerank: "reranked", explore: "explored" };

/** `view` has the largest probability, whether there is a history, the open cards, and `add` for a chosen item. */
export function card(model, answer, view) {
  const seen = { ...view, estimated: answer.estimated, scale: largest(answer.items) };
  const rows = answer.items.map((item, place) => row(item, place, seen));
  const element = make("article", { class: "card model", "aria-label": `Model ${model.name}` });
  element.dataset.model = model.name;
  element.append(make("h2", {}, model.name), about(model, view.open));
  if (answer.repeat_probability !== null) element.append(share(answer.repeat_probability, answer.estimated));
  for (const text of notes(answer, model, view.chosen)) element.append(make("p", { class: "note" }, text));
  element.append(make("ol", { "aria-label": "Best first" }, ...rows), json(answer));
  return element;
}

/** The answer as a program gets it, one click away. */
function json(answer) {
  const text = make("pre", { tabindex: 0, "aria-label": "The answer as JSON" });
  const details = make("details", { class: "json" }, make("summary", {}, "JSON"), text);
  details.addEventListener("toggle", () => { text.textContent = details.open ? write(answer, 1) : ""; });
  return details;
}

/** The model's own numbers, one click away. */
function about(model, open) {
  const { trained } = model;
  const number = (value) => value?.toLocaleString("en");
  const best = trained.validation?.best;
  const facts = {
    Validation: best === null || best === undefined ? "none" : `${trained.validation.metric} ${best.toFixed(4)}`,
    "Trained on": trained.targets && `${number(trained.targets)} targets per epoch, ${trained.epochs} epochs`,
    Split: trained.everything ? "none: trained on everything" : trained.split?.kind,
    Items: number(model.items),
    Parameters: number(model.parameters),
    Window: `${model.window} items`,
    Saved: trained.saved?.replace("T", " ").replace("+00:00", " UTC"),
    Version: model.version,
  };
  const rows = Object.entries(facts).filter(([, value]) => value);
  const list = make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const details = make("details", {}, make("summary", {}, `${model.encoder} · ${model.output}`), list);
  details.open = open.has(model.name);
  details.addEventListener("toggle", () => open[details.open ? "add" : "delete"](model.name));
  return details;
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

function notes(answer, model, chosen) {
  const said = [];
  if (answer.items[0]?.partition === "popular") {
    said.push(`${chosen ? "No item of the history is known" : "The history is empty"}: these are the most popular items.`);
  } else if (!answer.items.length) {
    said.push(chosen ? "Nothing may be recommended under this policy." : "Without a history there is nothing to repeat.");
  }
  if (answer.unknown.length) said.push(`Not known to ${model.name}: ${answer.unknown.join(", ")}`);
  return said;
}

function row(item, place, { longest, add, estimated, scale }) {
  const fill = make("i");
  fill.style.width = `${((item.probability ?? 0) / longest) * 100}%`;
  const button = make(
    "button", { type: "button", title: "Add to the history" },
    make("span", { class: "place" }, `${place + 1}`),
    make("span", { class: "name" }, item.title, item.repeat ? "\u00a0↻" : ""),
    make("span", { class: "chance" }, item.probability === null ? "" : percent(item.probability, estimated)),
    make("span", { class: "bar", "aria-hidden": "true" }, fill),
    make("span", { class: "why" }, ...why(item)),
  );
  button.addEventListener("click", () => add({ id: item.id, title: item.title }));
  const kind = item.partition === "popular" ? "popular" : item.repeat ? "repeat" : "new";
  const element = make("li", { class: kind }, button);
  if (item.argued_by) element.append(terms(item, scale));
  element.dataset.id = write(item.id);
  for (const [event, on] of [["pointerenter", true], ["focusin", true], ["pointerleave", false], ["focusout", false]]) {
    element.addEventListener(event, () => mark(element, on));
  }
  return element;
}

/** Repeat or new, what argues for it or scored it, and the reason in words. */
function why(item) {
  const kind = item.repeat ? "repeat" : "new";
  const by = item.argued_by ?? (item.repeat && item.partition === "explore" ? null : SCORED[item.partition]);
  const word = item.partition === "popular" ? "popular" : [kind, by].filter(Boolean).join(", ");
  const words = item.reason.includes(": ") && item.partition !== "popular" ? item.reason.replace(/^.*?: /, "") : "";
  return [make("b", {}, word), words && ` · ${words}`];
}

/** Show where the other model has the same item. */
function mark(element, on) {
  for (const other of document.querySelectorAll(".model li")) {
    other.classList.toggle("same", on && other !== element && other.dataset.id === element.dataset.id);
  }
}

/** A probability for people; one that a search index estimated is marked. */
function percent(share, estimated) {
  const about = estimated ? "≈ " : "";
  if (share > 0 && share < 0.0001) return `${about}< 0.01 %`;
  return `${about}${(share * 100).toFixed(share < 0.01 ? 2 : share < 0.9995 ? 1 : 0)} %`;
}
