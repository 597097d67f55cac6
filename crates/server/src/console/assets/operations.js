/** Screen Operations: what the server does, which calls were made, and who may do what. */

import { approvals } from "./approvals.js";
import { audit } from "./audit.js";
import { h, replace } from "./dom.js";
import { figures } from "./figures.js";
import { keys } from "./keys.js";
import { address } from "./place.js";
import { foreign, oneLine } from "./text.js";
import { usage } from "./usage.js";

const VIEWS = {
  figures: { title: "Figures", open: figures },
  usage: { title: "Use of tools", open: usage },
  approvals: { title: "Approvals", open: approvals },
  audit: { title: "Audit log", open: audit },
  keys: { title: "Keys", open: keys },
};

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[]}} catalogs
 */
export function operations(root, params, { list }) {
  const name = params.get("view") ?? "figures";
  const isKnown = Object.hasOwn(VIEWS, name);
  const body = h("div", { class: "operations-body" });
  const links = Object.entries(VIEWS).map(([view, { title }]) => h("a", { href: address("operations", { view }), "aria-current": view === name && "page" }, title));
  replace(root, h("div", { class: "operations" }, h("h1", { class: "sr" }, "Operations"), h("nav", { class: "views", "aria-label": "Operations" }, links), body));
  if (isKnown) return VIEWS[name].open(body, params, list);
  replace(body, h("div", { class: "empty" }, h("h2", {}, "There is no view ", foreign(oneLine(name, 60))), h("p", {}, "The address may be mistyped or old. Choose a view above.")));
  return { stop() {}, again() {} };
}
