/** Texts of tools, which anybody may have written: shown as they are, and never as more. */

import { h } from "./dom.js";

/**
 * Characters that are not seen, or that turn the text around them: controls, soft hyphens, zero
 * widths, marks of direction, and tags.
 */
const UNSEEN =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u061C\u180E\u200B\u200E\u200F\u2028-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB\u{E0000}-\u{E0FFF}]+/gu;
/** Words, and the parts of names as `createIssue`. */
const WORDS = /\p{Lu}+(?=\p{Lu}\p{Ll})|\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+|\p{N}+|[\p{Lo}\p{Lm}]+/gu;
/** Characters of a long text that are shown at first, and with each "more". */
const FIRST = 300;
const MORE = 20_000;

const counts = new Intl.NumberFormat("en");

/** A day and its time of day. */
export const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A count with its thousands apart. */
export const count = (number) => counts.format(number);

/** A count and its noun. */
export const counted = (number, noun) => `${count(number)} ${number === 1 ? noun : plural(noun)}`;

const plural = (noun) => (/[^aeiou]y$/u.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}${noun.endsWith("ch") ? "es" : "s"}`);

/** A number of milliseconds. */
export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : count(Math.round(ms))} ms`;

/** A number of bytes. */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = number < 1 ? 0 : Math.min(Math.floor(Math.log10(number) / 3), units.length - 1);
  const value = number / 1000 ** step;
  return `${step === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[step]}`;
}

/** The lines of a text that have something in them. */
export const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** A text of others in one direction of its own, with its unseen characters made visible. */
export function foreign(text, terms = [], properties = {}) {
  return h("bdi", properties, terms.length > 0 ? marked(text, terms) : visible(text));
}

/** The beginning of a text that is shown in one line. */
export function oneLine(text, length = 200) {
  const flat = text.slice(0, 4 * length).replace(/\s+/gu, " ").trim();
  return flat.length > length ? `${cut(flat, length)}…` : flat;
}

/** A text that may be long: its beginning, and a button for more. */
export function long(text, terms = []) {
  const box = h("div", { class: "long" });
  const show = (length) => {
    const whole = length >= text.length;
    const shown = length === FIRST && !whole ? oneLine(text, FIRST) : cut(text, length);
    box.replaceChildren(foreign(shown, terms, { class: length === FIRST ? "" : "lines" }));
    if (!whole) box.append(" ", moreButton(text.length - length, () => show(length === FIRST ? MORE : length + MORE)));
  };
  show(FIRST);
  return box;
}

function moreButton(rest, onclick) {
  return h("button", { type: "button", class: "link", onclick }, `more (${counted(rest, "character")})`);
}

/** The beginning of a text, without half a character at its end. */
function cut(text, length) {
  const code = text.charCodeAt(length - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? length - 1 : length);
}

function visible(text) {
  const nodes = [];
  let from = 0;
  const whole = text.replace(/\r\n/gu, "\n");
  for (const found of whole.matchAll(UNSEEN)) {
    nodes.push(whole.slice(from, found.index), sign(found[0]));
    from = found.index + found[0].length;
  }
  nodes.push(whole.slice(from));
  return nodes;
}

/** What stands for unseen characters: the code of the first, and how many there are. */
function sign(characters) {
  const all = Array.from(characters);
  const code = `U+${all[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  const said = all.length === 1 ? code : `${code} ×${all.length}`;
  return h("span", { class: "unseen", title: "characters that are not seen, or change the direction" }, said);
}

function marked(text, terms) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(WORDS)) {
    const [start, end] = matchIn(found[0], terms);
    if (start === end) continue;
    nodes.push(visible(text.slice(from, found.index + start)));
    nodes.push(h("mark", {}, text.slice(found.index + start, found.index + end)));
    from = found.index + end;
  }
  nodes.push(visible(text.slice(from)));
  return nodes;
}

/** Where in a word one of the terms is, which the index has cut to their stems. */
function matchIn(word, terms) {
  const small = word.toLowerCase();
  for (const term of terms) {
    if (/^[\p{Lo}\p{Lm}]+$/u.test(term)) {
      const at = small.indexOf(term);
      if (at >= 0) return [at, at + term.length];
    } else if (isForm(small, term)) return [0, word.length];
  }
  return [0, 0];
}

/** Whether a word is a form of a stem: `currencies` of `currenc`, `replies` of `repli`. */
function isForm(word, stem) {
  if (word === stem) return true;
  const root = stem.length > 3 ? stem.replace(/[iy]$/u, "") : stem;
  return root.length >= 3 && word.startsWith(root) && word.length - root.length <= 4;
}
