/** One tool: all that its definition says. */

import { call, isAbort, ofCatalog, ofTool } from "./api.js";
import { ask, tell } from "./dialog.js";
import { announce, copyButton, h, icon, replace, skeleton } from "./dom.js";
import { serverDescription, showOwnerWords } from "./owner.js";
import { address } from "./place.js";
import { changeOf, changeView } from "./review.js";
import { schemaForm } from "./schema.js";
import { count, counted, foreign, oneLine } from "./text.js";
import { toolTexts } from "./texts.js";
import { tryForm } from "./try.js";

const HINTS = {
  readOnlyHint: ["only reads", "changes something"],
  destructiveHint: ["may destroy", "destroys nothing"],
  idempotentHint: ["may be repeated", "not to be repeated"],
  openWorldHint: ["reaches the outside", "stays inside"],
};
/** Characters of JSON that are shown; all of it is copied. */
const SHOWN = 60_000;
const MOST_TAGS = 40;

/**
 * Shows a tool.
 * @param {HTMLElement} box
 * @param {string} catalog
 * @param {string} id
 * @param {{close: () => void, removed: (id: string) => void, decided: () => void, isOfServer: (id: string) => Promise<boolean>,
 *   allowed: import("./permissions.js").Allowed, signal: AbortSignal}} context `isOfServer` tells whether an MCP server brought a tool
 */
export async function showTool(box, catalog, id, context) {
  replace(box, skeleton(4, "short"));
  try {
    // A tool that is blocked is in no catalog, so its change is looked for first.
    const isOfServer = await context.isOfServer(id);
    const change = isOfServer ? await changeOf(id, catalog, context.signal) : null;
    const review = isOfServer && changeView(change, id, catalog, isOwner(context) && context.decided);
    if (change?.blocked_by) return replace(box, blockedHead(id, context), review);
    const tool = await call(ofTool(catalog, id), { signal: context.signal });
    const [described, owned, twins] = [h("div", {}, serverDescription(tool)), h("div", {}), h("div", {})];
    replace(box, head(tool, catalog, context), review, body(tool, { described, owned, twins }, catalog, context));
    await Promise.all([showOwnerWords(described, owned, tool, catalog, context), showTwins(twins, tool, catalog, context.signal)]);
  } catch (error) {
    if (isAbort(error)) return;
    replace(box, closeButton(context), h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
  }
}

function blockedHead(id, context) {
  return h("header", { class: "tool-head" }, closeButton(context),
    h("h2", { class: "name", tabindex: "-1" }, foreign(oneLine(id, 300))),
    h("p", { class: "muted" }, "It is neither found nor called until it is accepted."));
}

function closeButton(context) {
  return h("button", { type: "button", class: "quiet close", onclick: context.close, "aria-label": "Close the tool" }, icon("cross"));
}

function head(tool, catalog, context) {
  const remove = isOwner(context) && h("button", { type: "button", class: "quiet", onclick: () => removeTool(tool.id, catalog, context) }, "Remove");
  const find = h("a", { class: "link", href: address("search", { c: catalog, q: oneLine(tool.name) }) }, "Search for it");
  return h("header", { class: "tool-head" },
    closeButton(context),
    h("h2", { class: "name", tabindex: "-1" }, foreign(oneLine(tool.name, 300))),
    h("p", {}, tool.title && foreign(oneLine(tool.title)), tool.title && tool.server && " · ", tool.server && h("span", { class: "server" }, foreign(oneLine(tool.server)))),
    h("div", { class: "badges" }, tool.kind && h("span", { class: "badge" }, tool.kind), hints(tool.annotations), tool.tags.slice(0, MOST_TAGS).map((tag) => h("span", { class: "badge" }, foreign(oneLine(tag, 60))))),
    h("div", { class: "actions" }, find, remove));
}

function hints(annotations) {
  const known = Object.entries(HINTS).filter(([name]) => typeof annotations[name] === "boolean");
  return known.map(([name, [yes, no]]) => h("span", { class: `badge${name === "destructiveHint" && annotations[name] ? " warn" : ""}` }, annotations[name] ? yes : no));
}

function body(tool, { described, owned, twins }, catalog, context) {
  const json = JSON.stringify(tool, null, 2);
  const whole = h("details", {}, h("summary", {}, "JSON"),
    h("div", { class: "export-head" }, h("span", { class: "muted" }, counted(json.length, "character")), copyButton(() => json)),
    h("pre", { tabindex: 0, "aria-label": "The tool as JSON" }, foreign(json.slice(0, SHOWN))),
    json.length > SHOWN && h("p", { class: "muted" }, `The first ${count(SHOWN)}; all of them are copied.`));
  return h("div", { class: "tool-body" },
    described, owned,
    h("h3", {}, "Arguments"), schemaForm(tool.inputSchema), context.allowed.may("call") && tryIt(tool, catalog, context),
    tool.outputSchema && [h("h3", {}, "Result"), schemaForm(tool.outputSchema)],
    toolTexts(tool, catalog, context), twins, whole);
}

/** Whether the key may change the catalog: its tools, their words, and what was approved. */
const isOwner = ({ allowed }) => allowed.may("admin");

/** The form is made when it is opened. */
function tryIt(tool, catalog, context) {
  const details = h("details", { class: "try-it" }, h("summary", {}, "Try it"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(tryForm(tool, catalog, context.signal));
  });
  return details;
}

/**
 * Near-duplicates share a name. A search for the name that folds them has them in one hit with the
 * tool.
 */
async function showTwins(box, tool, catalog, signal) {
  const query = { query: tool.name, mode: "lexical", k: 50, fold_duplicates: true, trial: true };
  const { hits } = await call(ofCatalog(catalog, "/search"), { method: "POST", json: query, signal }).catch(() => ({ hits: [] }));
  if (signal.aborted) return;
  const groups = hits.map((hit) => [hit.id, ...(hit.also_on ?? [])]);
  const twins = (groups.find((ids) => ids.includes(tool.id)) ?? []).filter((id) => id !== tool.id);
  if (twins.length === 0) return;
  const links = twins.slice(0, 20).map((id) => h("li", {}, h("a", { href: address("catalog", { c: catalog, tool: id }) }, foreign(id))));
  replace(box, h("h3", {}, "Near-duplicates"), h("ul", { class: "plain" }, links));
}

async function removeTool(id, catalog, context) {
  const content = [h("p", {}, foreign(oneLine(id)), " will not be found any more."), h("p", { class: "muted" }, "It can be added again from where it came.")];
  if (!(await ask("Remove this tool?", content, { accept: "Remove", isDangerous: true }))) return;
  try {
    await call(ofTool(catalog, id), { method: "DELETE" });
    announce("Removed");
    context.removed(id);
  } catch (error) {
    await tell("Not removed", error);
  }
}
