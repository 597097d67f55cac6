/** Screen Operations: what the server does, which calls were made, and who may do what. */

import { approvals } from "./approvals.js";
import { audit } from "./audit.js";
import { h, replace } from "./dom.js";
import { figures } from "./figures.js";
import { keys } from "./keys.js";
import { address } from "./place.js";
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
  const name = params.get("view") in VIEWS ? params.get("view") : "figures";
  const body = h("div", { class: "operations-body" });
  const links = Object.entries(VIEWS).map(([view, { title }]) => h("a", { href: address("operations", { view }), "aria-current": view === name && "page" }, title));
  replace(root, h("div", { class: "operations" }, h("h1", { class: "sr" }, "Operations"), h("nav", { class: "views", "aria-label": "Operations" }, links), body));
  return VIEWS[name].open(body, params, list);
}
