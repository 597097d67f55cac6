/** Screen Operations: what the server does, which calls were made, and who may do what. */

import { approvals } from "./approvals.js";
import { audit } from "./audit.js";
import { h, replace } from "./dom.js";
import { figures } from "./figures.js";
import { keys } from "./keys.js";
import { address } from "./place.js";
import { foreign, oneLine } from "./text.js";
import { usage } from "./usage.js";

/** The views, and which keys may see each. */
const VIEWS = {
  figures: { title: "Figures", open: figures, isFor: ({ operates }) => operates },
  usage: { title: "Use of tools", open: usage, isFor: ({ may }) => may("admin") },
  approvals: { title: "Approvals", open: approvals, isFor: () => true },
  audit: { title: "Audit log", open: audit, isFor: ({ operates }) => operates },
  keys: { title: "Keys", open: keys, isFor: ({ operates }) => operates },
};

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[], allowed: import("./permissions.js").Allowed}} catalogs
 */
export function operations(root, params, { list, allowed }) {
  const offered = Object.entries(VIEWS).filter(([, { isFor }]) => isFor(allowed));
  const name = params.get("view") ?? offered[0][0];
  const isKnown = Object.hasOwn(VIEWS, name);
  const body = h("div", { class: "operations-body" });
  const links = offered.map(([view, { title }]) => h("a", { href: address("operations", { view }), "aria-current": view === name && "page" }, title));
  replace(root, h("div", { class: "operations" }, h("h1", { class: "sr" }, "Operations"), h("nav", { class: "views", "aria-label": "Operations" }, links), body));
  root.querySelector(".views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (isKnown) return VIEWS[name].open(body, params, list, allowed);
  replace(body, h("div", { class: "empty" }, h("h2", {}, "There is no view ", foreign(oneLine(name, 60))), h("p", {}, "The address may be mistyped or old. Choose a view above.")));
  return { stop() {}, again() {} };
}
