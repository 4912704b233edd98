// Requests to the server, and elements of the page. Text only ever goes in as text.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export class Refusal extends Error {
  constructor(status, detail, hint) {
    super(detail);
    Object.assign(this, { status, hint });
  }
}

// Integers beyond 2^53 are kept exactly where the browser allows it: an id must come back unchanged.
export const read = (text) =>
  JSON.parse(text, (name, value, { source } = {}) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value,
  );
export const write = (value, indent) =>
  JSON.stringify(value, (name, part) => (typeof part === "bigint" ? JSON.rawJSON(String(part)) : part), indent);

/** The answer to a request; a refusal carries its hint. */
export async function ask(path, body, signal) {
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
