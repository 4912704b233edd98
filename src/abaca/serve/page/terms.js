// The terms of a recommendation's logit: one bar of them all, and each of them one click away.

import { make } from "./server.js";

const LABELS = {
  network: "network",
  own: "in the history",
  count: "how often",
  since: "how many items ago",
  follow: "after the latest item",
  rhythm: "rhythm, in items",
  window: "among the latest items",
  time: "how long ago",
  "time rhythm": "rhythm, in time",
  hour: "hour of the day",
  week: "hour of the week",
  followers: "follows others",
};
const GROUPS = ["network", "habits", "followers"];
const groupOf = (name) => (GROUPS.includes(name) ? name : "habits");
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

/** What network, habits and followers add to the logit. */
function sums(item) {
  const found = {};
  for (const [name, value] of Object.entries(item.terms)) found[groupOf(name)] = (found[groupOf(name)] ?? 0) + value;
  return found;
}

/** How far the bars of a list reach below and above zero: of the groups, and of single terms. */
export function largest(items) {
  const reach = (lists) => ({
    low: Math.max(...lists.map((values) => -values.reduce((sum, value) => sum + Math.min(value, 0), 0)), 0),
    high: Math.max(...lists.map((values) => values.reduce((sum, value) => sum + Math.max(value, 0), 0)), 1e-9),
  });
  const single = items.flatMap((item) => Object.values(item.terms).map((value) => [value]));
  return { groups: reach(items.map((item) => Object.values(sums(item)))), terms: reach(single) };
}

/** The bar of an item, positive terms right of zero and negative ones left of it; a click shows each term. */
export function terms(item, scale) {
  const found = sums(item);
  const parts = GROUPS.filter((name) => name in found);
  const said = parts.map((name) => `${name} ${signed(found[name])}`).join(", ");
  const bar = make("span", { class: "stack", "aria-hidden": "true" });
  draw(bar, parts.map((name) => [name, found[name]]), scale.groups);
  const summary = make("summary", { title: said }, make("span", { class: "unseen" }, `Score ${signed(item.logit)}: ${said}`), bar);
  return make("details", { class: "terms" }, summary, table(item, scale.terms));
}

function table(item, scale) {
  const rows = Object.entries(item.terms).map(([name, value]) => {
    const bar = make("i", { "aria-hidden": "true" });
    draw(bar, [[groupOf(name), value]], scale);
    return make("tr", {}, make("th", { scope: "row" }, LABELS[name] ?? name), make("td", {}, bar), make("td", {}, signed(value)));
  });
  const sum = make("tr", {}, make("th", { scope: "row" }, "score"), make("td"), make("td", {}, signed(item.logit)));
  return make("table", {}, make("tbody", {}, ...rows), make("tfoot", {}, sum));
}

/** Stack named values on both sides of zero. */
function draw(bar, values, { low, high }) {
  const share = (value) => `${(value / (low + high)) * 100}%`;
  const ends = { right: 0, left: 0 };
  bar.style.setProperty("--zero", share(low));
  for (const [name, value] of values) {
    const size = Math.abs(value);
    const part = make("b", { class: name });
    part.style.width = share(size);
    part.style.left = share(value < 0 ? low - ends.left - size : low + ends.right);
    ends[value < 0 ? "left" : "right"] += size;
    bar.append(part);
  }
}
