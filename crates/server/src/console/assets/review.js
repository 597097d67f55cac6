/** What changed in tools since it was approved, and the decision about it. */

import { call, isAbort, ofCatalog } from "./api.js";
import { linesDiff, wordsDiff } from "./arguments.js";
import { ask, tell } from "./dialog.js";
import { announce, h, icon, replace, skeleton } from "./dom.js";
import { address } from "./place.js";
import { time } from "./servers.js";
import { counted, foreign, long, oneLine } from "./text.js";

const PAGE = 50;
const KINDS = { new: "new", changed: "changed", removed: "no longer offered" };
const PARTS = { title: "Title", description: "Description", inputSchema: "Arguments", outputSchema: "Result", annotations: "Hints" };
const FINDINGS = { instruction: "Instructs the model", secrets: "Asks for secrets or the conversation", hidden_characters: "Has hidden characters", encoded_text: "Has a long encoded text", other_tools: "Speaks of other tools", look_alike: "Looks like a tool of another server" };
/** Longer texts are not compared word by word. */
const MOST_CHARACTERS = 20_000;

/** The changes of a catalog that nobody has decided on. */
export class Review {
  /**
   * @param {string} catalog
   * @param {?() => void} decided is called after each decision; null for a key that may not decide
   */
  constructor(catalog, decided) {
    Object.assign(this, { catalog, decided });
    this.element = h("div", { class: "review" });
    this.aborter = new AbortController();
  }

  stop() {
    this.aborter.abort();
  }

  /** Shows the changes of a server, or of all of them. */
  async show(server) {
    this.aborter.abort();
    this.aborter = new AbortController();
    this.server = server;
    this.cards = h("div", { class: "cards" }, skeleton(3, "tall"));
    this.foot = h("div", {});
    replace(this.element, this.cards, this.foot);
    await this.load(null);
  }

  async load(cursor) {
    const { signal } = this.aborter;
    const query = new URLSearchParams({ limit: PAGE, ...(this.server && { server: this.server }), ...(cursor && { cursor }) });
    try {
      const page = await call(ofCatalog(this.catalog, `/changes?${query}`), { signal });
      if (!cursor) replace(this.cards, page.changes.length > 0 ? this.heading(page) : h("p", { class: "muted" }, "Nothing has changed since it was approved."));
      for (const change of page.changes) this.cards.append(changeCard(change, { catalog: this.catalog, isLinked: true, decided: this.decided }));
      replace(this.foot, page.next_cursor && h("button", { type: "button", onclick: () => this.load(page.next_cursor) }, "More changes"));
    } catch (error) {
      if (!isAbort(error)) replace(this.foot, h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
    }
  }

  heading({ total }) {
    const all = this.decided && this.server && h("button", { type: "button", onclick: () => this.acceptAll(total) }, icon("check"), "Accept all of this server");
    return h("div", { class: "export-head" }, h("p", { class: "muted" }, "A server's first list of tools counts as approved."), all);
  }

  async acceptAll(total) {
    const content = [
      h("p", {}, `${counted(total, "change")} of `, foreign(this.server), " take effect and are approved from then on. Tools that a person has blocked stay so."),
      this.cards.querySelector(".suspicious") && h("p", { class: "notice error" }, "Some of them are suspicious. Models read these definitions."),
    ];
    const isDangerous = this.cards.querySelector(".suspicious") !== null;
    if (!(await ask("Accept all of them?", content, { accept: isDangerous ? "Accept all, also suspicious ones" : "Accept all", isDangerous }))) return;
    await decide(this.catalog, { accept_all: [this.server] }, this.decided);
  }
}

/** The change of one tool, or null. */
export async function changeOf(tool, catalog, signal) {
  const { changes } = await call(ofCatalog(catalog, `/changes?${new URLSearchParams({ tool })}`), { signal });
  return changes[0] ?? null;
}

/** A change to decide on; without one, a way to block the tool. `decided` is as for {@link Review}. */
export function changeView(change, id, catalog, decided) {
  if (change) return changeCard(change, { catalog, decided });
  return h("p", { class: "muted approved" }, "As it was approved. ", decided && h("button", { type: "button", class: "link", onclick: () => block(catalog, { id }, decided) }, "Block"));
}

function changeCard(change, { catalog, isLinked = false, decided }) {
  const { id, kind, parts, blocked_by: blockedBy, since_ms: since } = change;
  const name = isLinked && change.after && !blockedBy ? h("a", { class: "name", href: address("catalog", { c: catalog, tool: id }) }, foreign(oneLine(id, 160))) : h("span", { class: "name" }, foreign(oneLine(id, 160)));
  const isSuspicious = change.findings.length > 0;
  const kinds = ["change", blockedBy && "blocked", isSuspicious && "suspicious"].filter(Boolean);
  return h("article", { class: kinds.join(" "), "aria-label": `Change of ${oneLine(id, 80)}` },
    h("header", { class: "head" }, isLinked && name, (kind !== "changed" || parts.length > 0) && h("span", { class: "badge accent" }, KINDS[kind] ?? kind), blockedBy && h("span", { class: "badge warn" }, blockedBy === "person" ? "blocked by a person" : "blocked until accepted"), h("span", { class: "muted" }, "since ", time(since))),
    kind === "new" && change.after && h("div", {}, long(change.after.description || "No description.")),
    kind === "removed" && h("p", { class: "muted" }, "Its server no longer offers it."),
    isSuspicious && h("ul", { class: "findings", "aria-label": "What is suspicious" }, change.findings.map(finding)),
    parts.map((part) => partDiff(part, change)),
    decided && h("div", { class: "approval-buttons" }, decisionButtons(change, catalog, decided)));
}

/** Accept leads, except for a suspicious change: there Block leads, and Accept asks once more. */
function decisionButtons(change, catalog, decided) {
  const { blocked_by: blockedBy, findings } = change;
  const isSuspicious = findings.length > 0;
  const caption = blockedBy && change.after ? "Accept and use it" : "Accept";
  const accept = h("button", { type: "button", class: isSuspicious ? "" : "primary", onclick: () => accepted(change, catalog, decided) }, icon("check"), isSuspicious ? `${caption}…` : caption);
  const refuse = blockedBy !== "person" && h("button", { type: "button", class: isSuspicious ? "danger" : "", onclick: () => block(catalog, change, decided) }, "Block");
  return isSuspicious ? [refuse, accept] : [accept, refuse];
}

async function accepted({ id, version, findings }, catalog, decided) {
  if (findings.length > 0) {
    const content = [h("p", {}, "Models read this definition. toolscout found in ", foreign(oneLine(id)), ":"), h("ul", { class: "findings" }, findings.map(finding))];
    if (!(await ask("Accept a suspicious definition?", content, { accept: "Accept it all the same", isDangerous: true }))) return;
  }
  await decide(catalog, { decisions: [{ id, decision: "accept", version }] }, decided);
}

/** Something suspicious in a definition, with its words. */
function finding({ kind, path, text }) {
  return h("li", { class: "warn-text" }, `${FINDINGS[kind] ?? kind}: `, h("span", { class: "mono" }, foreign(text)), h("span", { class: "muted" }, " at ", foreign(path)));
}

/** One part of a definition, before and after. */
function partDiff(part, { before, after }) {
  if (!before || !after) return h("p", { class: "muted" }, "The approved definition is not known any more.");
  const [from, to] = [before[part] ?? "", after[part] ?? ""];
  const isText = typeof from === "string" && typeof to === "string";
  const isShort = JSON.stringify(from).length + JSON.stringify(to).length < 2 * MOST_CHARACTERS;
  const both = !isShort ? [h("h4", {}, "Before"), long(asText(from)), h("h4", {}, "After"), long(asText(to))]
    : isText ? h("p", { class: "words" }, wordsDiff(from, to))
      : h("pre", { class: "arguments", tabindex: 0, "aria-label": `${PARTS[part] ?? part}, before and after` }, linesDiff(from, to));
  return h("div", {}, h("h3", {}, PARTS[part] ?? part), both);
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

async function block(catalog, { id, version }, decided) {
  const content = h("p", {}, foreign(oneLine(id)), " is neither found nor called until it is accepted here, whatever its server offers.");
  if (!(await ask("Block this tool?", content, { accept: "Block", isDangerous: true }))) return;
  await decide(catalog, { decisions: [{ id, decision: "block", version }] }, decided);
}

async function decide(catalog, decisions, decided) {
  try {
    const { accepted, blocked } = await call(ofCatalog(catalog, "/changes"), { method: "POST", json: decisions });
    announce(blocked.length > 0 ? `${counted(blocked.length, "tool")} blocked` : `${counted(accepted.length, "change")} accepted`);
  } catch (error) {
    await tell("Not decided", error);
  }
  decided();
}
