/** What the owner of a catalog says of a tool: the description that models read, other names, pins and boosts. */

import { call, ofCatalog } from "./api.js";
import { announce, h, replace } from "./dom.js";
import { editWords, ownOf, removePin } from "./own_words.js";
import { foreign, long, oneLine } from "./text.js";

const MOST_ENTRIES = 20;

/** The description of a tool as its server gives it. */
export function serverDescription(tool) {
  return tool.description ? long(tool.description) : h("p", { class: "muted" }, "No description: it is found by its name and arguments alone.");
}

/**
 * Shows the owner's words once they are read: the description in place of the server's, and the rest in `box`.
 * @param {HTMLElement} described has the server's description
 * @param {HTMLElement} box
 * @param {{allowed: import("./permissions.js").Allowed, signal: AbortSignal}} context
 */
export async function showOwnerWords(described, box, tool, catalog, { allowed, signal }) {
  // Without them the tool is shown as its server describes it.
  const answer = await call(ofCatalog(catalog, "/words"), { signal }).catch(() => null);
  if (!answer || signal.aborted) return;
  const { words } = answer;
  const own = ownOf(words.descriptions, tool.id);
  if (own) {
    replace(described, h("p", { class: "muted" }, "Models read the owner's description:"), long(own),
      h("details", {}, h("summary", {}, "The server's description"), serverDescription(tool)));
  } else replace(described, serverDescription(tool));
  const again = async (...said) => {
    await showOwnerWords(described, box, tool, catalog, { allowed, signal });
    box.append(h("p", { class: "notice", role: "status" }, said));
    box.querySelector(".notice .link, .actions button")?.focus();
  };
  const saved = (undo) => {
    if (undo === null) return;
    announce("Saved");
    const button = h("button", { type: "button", class: "link", onclick: async () => {
      if (await undo()) again("Undone.");
    } }, "Undo");
    again("Saved. ", button);
  };
  const isOwner = allowed.may("admin");
  const edit = h("button", { type: "button", class: "quiet", onclick: async () => saved(await editWords(tool, words, catalog)) }, "Change");
  const unpin = isOwner && (async (name, pin) => saved(await removePin(name, pin, catalog)));
  const entries = entriesOf(words, tool, unpin);
  const more = entries.length > MOST_ENTRIES && h("li", { class: "muted" }, `and ${entries.length - MOST_ENTRIES} more`);
  const list = entries.length > 0
    ? h("ul", { class: "plain" }, entries.slice(0, MOST_ENTRIES).map((entry) => h("li", {}, entry)), more)
    : h("p", { class: "muted" }, "No other names, pins or factors.");
  replace(box, h("h3", {}, "The owner's words"), list, isOwner && h("div", { class: "actions" }, edit));
}

/** What each entry does to this tool. */
function entriesOf({ aliases = {}, pins = {}, boosts = {} }, tool, unpin) {
  const entries = (ownOf(aliases, tool.id) ?? []).map((alias) => ["Also called ", h("b", {}, foreign(oneLine(alias)))]);
  for (const [name, pin] of Object.entries(pins)) {
    if (pin.tool !== tool.id) continue;
    const requests = pin.match === "contains" ? "for requests with " : "for the request ";
    entries.push([pin.hide ? "Hidden " : `Pinned to place ${pin.place ?? 1} `, requests, h("b", {}, foreign(oneLine(pin.query))), " ",
      unpin && h("button", { type: "button", class: "link", onclick: () => unpin(name, pin) }, "Take back")]);
  }
  const factors = [
    ["this tool", ownOf(boosts.tools, tool.id)],
    [`the server ${tool.server ?? ""}`, ownOf(boosts.servers, tool.server ?? "")],
    ...tool.tags.map((tag) => [`the tag ${tag}`, ownOf(boosts.tags, tag)]),
  ];
  for (const [of, factor] of factors) {
    if (factor === 0) entries.push(["Switched off by the factor 0 of ", foreign(oneLine(of)), ": no search finds it"]);
    else if (factor !== undefined) entries.push([`Boosted by the factor ${factor} of `, foreign(oneLine(of))]);
  }
  return entries;
}
