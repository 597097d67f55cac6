/** What the views of operations have in common. */

import { h } from "./dom.js";
import { count, foreign } from "./text.js";

/** In the place of what a key may not see, or of what failed. */
export function notShown(error, retry) {
  if (error.code === "wrong_scope") {
    return h("div", { class: "empty" }, h("h2", {}, "Not with this key"), h("p", { class: "muted" }, "This is for admin keys for all catalogs. The other screens work with this key as before; ", h("b", {}, "Key"), " above forgets it, to enter another one."));
  }
  return h("p", { class: "notice error", role: "alert" }, foreign(error.message), " ", h("button", { type: "button", class: "link", onclick: retry }, "Try again"));
}

/** A box with a heading. */
export function card(title, ...content) {
  return h("section", { class: "card" }, h("h2", {}, title), content);
}

/**
 * A table. Its box scrolls on a narrow screen, also by the keyboard.
 * @param {string} label what it shows
 * @param {Array} heads
 * @param {Array<Array>} rows of cells; the first one is the head of its row
 */
export function table(label, heads, rows) {
  const head = h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name))));
  const body = rows.map(([first, ...cells]) => h("tr", {}, h("th", { scope: "row" }, first), cells.map((cell) => h("td", {}, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, h("table", {}, head, h("tbody", {}, body)));
}

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A moment in the time of the reader. */
export const moment = (ms) => h("time", { datetime: new Date(ms).toISOString() }, moments.format(ms));

/** A time in its largest two units. */
export function duration(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}

/** A whole number of milliseconds. */
export const took = (ms) => (ms < 1 ? "under 1 ms" : `${count(ms)} ms`);
