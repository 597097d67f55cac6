/** The arguments of a call: as the model gave them, and what was changed before they were sent. */

import { h } from "./dom.js";
import { foreign, oneLine } from "./text.js";

/** Pairs of lines that are compared; longer texts are shown one after the other. */
const MOST_PAIRS = 250_000;
/** Characters that are drawn unless all of them have to be seen. */
const SHOWN = 20_000;
const MOST_CHANGES = 50;

const REASONS = {
  number: "a number was given as text",
  text: "text was given as a number",
  boolean: "a yes or no was given as text",
  enum: "an allowed value was given in another case",
  trimmed: "spaces around it were removed",
  json: "JSON was given inside of text",
  default: "a safe default for reading",
  null: "it was null, which is not sent",
  identity: "the user for whom the call is made",
  owner: "the owner of the server has set it",
};

/**
 * @param {unknown} given by the model
 * @param {unknown} sent to the tool
 * @param {Array<{path: string, from: unknown, to: unknown, why: string}>} changes
 * @param {{isWhole?: boolean}} [options] whether all of it is shown, however long
 */
export function argumentsView(given, sent, changes, { isWhole = false } = {}) {
  const [before, after] = [written(given), written(sent)];
  const lines = before === after ? [[" ", after]] : difference(before.split("\n"), after.split("\n"), isSame);
  const name = before === after ? "Arguments" : "Arguments as the model gave them, and as they are sent";
  const all = lines.length === 1 && !isWhole && after.length > SHOWN ? [[" ", `${after.slice(0, SHOWN)}…`]] : lines;
  return [
    h("pre", { class: isWhole ? "arguments whole" : "arguments", tabindex: 0, "aria-label": name }, all.map(line)),
    changes.length > 0 && h("ul", { class: "changes" }, changes.slice(0, MOST_CHANGES).map(change)),
  ];
}

function written(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
}

/** Lines that stay above and below those that change; the others are left out. */
const AROUND = 3;

/** Two values as JSON, line by line: what changed, and what stands around it. */
export function linesDiff(before, after) {
  const lines = difference(written(before).split("\n"), written(after).split("\n"), isSame);
  const isNear = (index) => lines.slice(Math.max(index - AROUND, 0), index + AROUND + 1).some(([sign]) => sign !== " ");
  const shown = [];
  let isGap = false;
  for (const [index, each] of lines.entries()) {
    if (isNear(index)) shown.push(line(each));
    else if (!isGap) shown.push(h("div", { class: "muted" }, "…"));
    isGap = !isNear(index);
  }
  return shown;
}

/** Two texts in one, word by word. */
export function wordsDiff(before, after) {
  const words = (text) => text.split(/(?<=\s)(?=\S)/u);
  const joined = [];
  for (const [sign, word] of difference(words(before), words(after), Object.is)) {
    const last = joined.at(-1);
    if (last?.[0] === sign) last[1] += word;
    else joined.push([sign, word]);
  }
  return joined.map(([sign, text]) => (sign === " " ? foreign(text) : h(sign === "-" ? "del" : "ins", {}, foreign(text))));
}

const SIGNS = { "-": ["del", "given"], "+": ["ins", "sent"] };

function line([sign, text]) {
  if (sign === " ") return h("div", {}, foreign(text));
  const [name, said] = SIGNS[sign];
  return h("div", { class: name }, h("span", { "aria-hidden": "true" }, sign === "-" ? "−" : "+", " "), h("span", { class: "sr" }, `${said}: `), foreign(text));
}

function change({ path, why }) {
  return h("li", {}, h("code", {}, foreign(oneLine(path.slice(1) || path, 80))), " ", REASONS[why] ?? String(why).replaceAll("_", " "));
}

/** Whether two lines say the same; only the last of an object has no comma. */
const isSame = (one, other) => one.replace(/,$/u, "") === other.replace(/,$/u, "");

/** What was changed, line by line: the longest common sequence stays. */
function difference(before, after, isSame) {
  if (before.length * after.length > MOST_PAIRS) return [...before.map((text) => ["-", text]), ...after.map((text) => ["+", text])];
  const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i][j] = isSame(before[i], after[j]) ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && isSame(before[i], after[j])) {
      lines.push([" ", after[j]]);
      i += 1;
      j += 1;
    } else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) {
      lines.push(["-", before[i]]);
      i += 1;
    } else {
      lines.push(["+", after[j]]);
      j += 1;
    }
  }
  return lines;
}

/** The arguments after these changes, which name them by JSON pointers. */
export function changed(given, changes) {
  if (typeof given !== "object" || given === null) return given;
  const copy = structuredClone(given);
  for (const { path, to } of changes) {
    const names = path.split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = names.pop();
    const holder = names.reduce((value, name) => (value !== null && typeof value === "object" && Object.hasOwn(value, name) ? value[name] : undefined), copy);
    if (holder === null || typeof holder !== "object" || last === undefined) continue;
    if (to === null) delete holder[last];
    // Never assigned: a name as `__proto__` stays a name.
    else Object.defineProperty(holder, last, { value: to, enumerable: true, writable: true, configurable: true });
  }
  return copy;
}
