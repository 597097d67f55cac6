/** Changing the owner's words: what is said of a tool, and what a request should find. */

import { call, ofCatalog } from "./api.js";
import { ask, field, tell } from "./dialog.js";
import { h } from "./dom.js";
import { foreign, linesOf, oneLine } from "./text.js";

/** Limits of the API. */
const MOST_NAMES = 16;
const MOST_NAME_CHARACTERS = 200;
const MOST_DESCRIPTION_CHARACTERS = 4000;

/** Changes what the patch names (a JSON merge patch), and leaves the rest as it is. */
const patchWords = (catalog, patch) => call(ofCatalog(catalog, "/words"), { method: "PATCH", body: JSON.stringify(patch), type: "application/merge-patch+json" });

const readWords = async (catalog) => (await call(ofCatalog(catalog, "/words"))).words;

/** A value of an object by a name of others, which may be `constructor`. */
export const ownOf = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);

/**
 * Lets the owner change what is said of a tool.
 * @returns {Promise<?() => Promise<boolean>>} undoes what was saved; null if nothing was
 */
export async function editWords(tool, words, catalog) {
  const known = {
    description: ownOf(words.descriptions, tool.id) ?? "",
    names: (ownOf(words.aliases, tool.id) ?? []).join("\n"),
    factor: String(ownOf(words.boosts?.tools, tool.id) ?? ""),
  };
  // What could not be saved is not lost: the form opens again with it.
  for (let shown = known; ;) {
    const given = await ask("The owner's words", wordsForm(tool, shown), { accept: "Save" }, (form) => linesOf(form.elements.names.value).length <= MOST_NAMES);
    if (!given) return null;
    shown = { description: given.get("description").trim(), names: linesOf(given.get("names")).join("\n"), factor: given.get("factor") };
    const patch = changesOf(tool.id, known, shown);
    if (await attempt(() => patchWords(catalog, patch))) return () => attempt(() => patchWords(catalog, changesOf(tool.id, shown, known)));
  }
}

/** What differs from what the form showed: others may have changed the rest since. */
function changesOf(id, known, { description, names, factor }) {
  return {
    ...(description !== known.description && { descriptions: { [id]: description || null } }),
    ...(names !== known.names && { aliases: { [id]: names ? linesOf(names) : null } }),
    ...(factor !== known.factor && { boosts: { tools: { [id]: factor === "" ? null : Number(factor) } } }),
  };
}

function wordsForm(tool, { description, names, factor }) {
  const described = h("textarea", {
    id: "field-description", name: "description", rows: 4, maxlength: MOST_DESCRIPTION_CHARACTERS, autofocus: true,
    placeholder: oneLine(tool.description ?? "", 400), value: description, "aria-describedby": "field-description-hint",
  });
  const named = h("textarea", { id: "field-names", name: "names", rows: 3, value: names, "aria-describedby": "field-names-hint" });
  return h("div", { class: "inputs" },
    area("Description for search and models", "description", described, "Leave it empty to use the server's description."),
    area("Also called", "names", named, `One name a line, at most ${MOST_NAMES}. A request that is one of these names finds the tool first.`),
    field("Factor of its score", "factor", { type: "number", min: 0, max: 10, step: "any", value: factor, placeholder: "1" }, "From 0.1 to 10. 0 switches the tool off: no search finds it."));
}

const area = (label, name, input, hint) => h("div", { class: "field" }, h("label", { for: `field-${name}` }, label), input, h("small", { id: `field-${name}-hint`, class: "muted" }, hint));

/**
 * Removes a pin.
 * @returns {Promise<?() => Promise<boolean>>} undoes it; null if it was not removed
 */
export async function removePin(name, pin, catalog) {
  const set = (value) => attempt(() => patchWords(catalog, { pins: { [name]: value } }));
  return (await set(null)) ? () => set(pin) : null;
}

/** What the owner may change about a hit: what it does, and how. */
const CHANGES = {
  first: { does: "Put it first for this request", done: "is first for this request", patch: ({ pin }) => ({ pins: pin({ place: 1 }) }), undo: ({ pin }) => ({ pins: pin(null) }) },
  hide: { does: "Hide it for this request", done: "is hidden for this request", patch: ({ pin }) => ({ pins: pin({ hide: true }) }), undo: ({ pin }) => ({ pins: pin(null) }) },
  name: { does: "Give it another name, which a request may use", done: "has another name", patch: ({ id, names, name }) => ({ aliases: { [id]: [...names, name] } }), undo: ({ id, names }) => ({ aliases: { [id]: names.length > 0 ? names : null } }) },
  unpin: { does: "Take back what was pinned or hidden for this request", done: "is found as without a pin", patch: ({ unpin }) => ({ pins: unpin }), undo: ({ pin }) => ({ pins: pin(null) }) },
  off: { does: "Switch it off: no search finds it", done: "is switched off", patch: ({ id }) => ({ boosts: { tools: { [id]: 0 } } }), undo: ({ id, factor }) => ({ boosts: { tools: { [id]: factor ?? null } } }) },
};

/**
 * Lets the owner change what a request finds.
 * @param {string} asked the request
 * @returns {Promise<?{said: string, undo: () => Promise<boolean>}>} what was done, and how to undo it
 */
export async function changeHit(hit, asked, catalog) {
  const isPinned = hit.explain?.owner_words?.some(({ kind }) => kind === "pin") ?? false;
  const choices = Object.entries(CHANGES).filter(([name]) => name !== "unpin" || isPinned).map(([name, { does }], index) => h("label", { class: "check" }, h("input", { type: "radio", name: "change", value: name, checked: index === 0 }), h("span", {}, does)));
  const content = [
    h("p", { class: "muted" }, "The request is ", h("q", {}, foreign(oneLine(asked, 120))), ". The words of the catalog's owner are changed, for every user of the catalog."),
    choices, field("The other name", "name", { value: asked, maxlength: MOST_NAME_CHARACTERS }),
  ];
  const isComplete = (form) => {
    const isName = form.elements.change.value === "name";
    form.elements.name.closest(".field").hidden = !isName;
    return !isName || form.elements.name.value.trim() !== "";
  };
  const given = await ask(`Change ${oneLine(hit.name, 80)}`, content, { accept: "Save" }, isComplete);
  if (!given) return null;
  const { patch, undo, done } = CHANGES[given.get("change")];
  let before = null;
  const saved = await attempt(async () => {
    before = await stateOf(hit, asked, given.get("name").trim(), catalog);
    await patchWords(catalog, patch(before));
  });
  return saved ? { said: `${oneLine(hit.name, 80)} ${done}.`, undo: () => attempt(() => patchWords(catalog, undo(before))) } : null;
}

/** What the words say of a hit before a change, to be able to go back. */
async function stateOf({ id }, asked, name, catalog) {
  const words = await readWords(catalog);
  const known = Object.entries(words.pins ?? {}).find(([, pin]) => pin.tool === id && pin.query === asked && pin.match !== "contains");
  const key = known?.[0] ?? `${id.slice(0, 80)} ${Math.random().toString(36).slice(2, 10)}`;
  // A merge patch keeps what it does not name.
  const whole = (pin) => ({ query: asked, tool: id, place: null, hide: null, ...pin });
  const pin = (how) => ({ [key]: how || known ? whole(how ?? known[1]) : null });
  return { id, name, pin, unpin: { [key]: null }, names: ownOf(words.aliases, id) ?? [], factor: ownOf(words.boosts?.tools, id) };
}

async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    await tell("Not saved", error);
    return false;
  }
}
