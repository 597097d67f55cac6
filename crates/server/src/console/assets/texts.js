/** What people say when they need a tool: the texts of a tool, and how far those of a catalog are. */

import { call, isAbort, ofCatalog, pause } from "./api.js";
import { ask, tell } from "./dialog.js";
import { announce, h, replace } from "./dom.js";
import { address } from "./place.js";
import { count, counted, foreign, linesOf, oneLine } from "./text.js";

const MOST_TEXTS = 8;
const MOST_CHARACTERS = 200;
/** How often the progress of a task is asked for. */
const ASK_EVERY_MS = 500;

const ofTexts = (catalog, id) => ofCatalog(catalog, `/texts/${encodeURIComponent(id)}`);

/** The texts of a tool, which can be changed. They are read once the element is there. */
export function toolTexts(tool, catalog, context) {
  const box = h("div", { class: "texts" });
  showTexts(box, tool, catalog, context);
  return box;
}

async function showTexts(box, tool, catalog, context) {
  const { allowed, signal } = context;
  let known;
  try {
    known = await call(ofTexts(catalog, tool.id), { signal });
  } catch (error) {
    if (isAbort(error)) return;
    return replace(box, h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
  }
  const again = () => showTexts(box, tool, catalog, context);
  const has = known.texts.length > 0;
  const edit = h("button", { type: "button", class: "quiet", onclick: () => editTexts(known.texts, tool, catalog, again) }, has ? "Edit" : "Write");
  const forget = has && h("button", { type: "button", class: "quiet", onclick: () => forgetTexts(tool, catalog, again) }, "Delete");
  replace(box,
    h("h3", {}, "What people say"),
    has
      ? [h("ul", { class: "plain" }, known.texts.map((text) => h("li", {}, foreign(text)))), h("p", { class: "muted" }, "Written by ", foreign(oneLine(known.model, 60)), ". Dense search finds the tool by these texts too.")]
      : h("p", { class: "muted" }, "No texts of what people say when they need this tool."),
    allowed.may("admin") && h("div", { class: "actions" }, edit, forget));
}

async function editTexts(before, tool, catalog, again) {
  const area = h("textarea", { id: "field-texts", name: "texts", rows: 6, autofocus: true, "aria-describedby": "field-texts-hint", value: before.join("\n") });
  const hint = h("small", { id: "field-texts-hint", class: "muted" }, `One text a line, at most ${MOST_TEXTS} of at most ${MOST_CHARACTERS} characters. Use the words of somebody who does not know the tool.`);
  const content = h("div", { class: "field inputs" }, h("label", { for: "field-texts" }, "What people say when they need ", foreign(oneLine(tool.name, 60))), area, hint);
  const isComplete = (form) => {
    const texts = linesOf(form.elements.texts.value);
    return texts.length > 0 && texts.length <= MOST_TEXTS && texts.every((text) => [...text].length <= MOST_CHARACTERS);
  };
  const given = await ask("Texts", content, { accept: "Save" }, isComplete);
  if (!given) return;
  await attempt("Not saved", async () => {
    const texts = linesOf(given.get("texts"));
    const save = (reviewed) => call(ofTexts(catalog, tool.id), { method: "PUT", json: { texts, reviewed } });
    try {
      await save(false);
    } catch (error) {
      if (error.code !== "texts_held") throw error;
      // The server asks for a person who has read them.
      const reason = h("p", {}, foreign(error.message.split("; once")[0]), ".");
      const content = [reason, h("p", {}, "Searches for that tool might then find this one.")];
      if (!(await ask("Save these texts all the same?", content, { accept: "Save" }))) return;
      await save(true);
    }
    announce("Saved");
  });
  await again();
}

async function forgetTexts(tool, catalog, again) {
  const content = h("p", {}, foreign(oneLine(tool.id)), " will be found by its definition alone.");
  if (!(await ask("Delete these texts?", content, { accept: "Delete", isDangerous: true }))) return;
  await attempt("Not deleted", () => call(ofTexts(catalog, tool.id), { method: "DELETE" }));
  await again();
}

/** How many tools of a catalog have texts, what they are worth, and the model that can write more. */
export class CatalogTexts {
  /**
   * @param {string} catalog
   * @param {boolean} mayWrite whether the key may let the model write
   * @param {AbortSignal} signal
   */
  constructor(catalog, mayWrite, signal) {
    Object.assign(this, { catalog, mayWrite, signal });
    this.element = h("div", { class: "catalog-texts" });
    this.measured = null;
  }

  async show() {
    if (this.isWriting) return;
    try {
      this.state = await call(ofCatalog(this.catalog, "/enrich"), { signal: this.signal });
      this.draw();
    } catch {
      // What is wrong is said by the statistics.
    }
  }

  draw(progress = null) {
    const { tools, with_texts: written, model, mode } = this.state;
    const canWrite = this.mayWrite && model && mode !== "off" && written < tools && !progress;
    if (tools === 0 || (written === 0 && !canWrite && !progress && !this.state.held)) return replace(this.element);
    replace(this.element, h("p", { class: "muted" },
      `${count(written)} of ${counted(tools, "tool")} with texts of what people say. `,
      canWrite && h("button", { type: "button", class: "link", onclick: () => this.write() }, "Write the others"),
      canWrite && written > 0 && " · ",
      written > 0 && !progress && h("button", { type: "button", class: "link", onclick: () => this.measure() }, "What are they worth?")),
      progress, heldView(this.state), this.measured);
  }

  async write() {
    const path = ofCatalog(this.catalog, "/enrich");
    await attempt("Not written", async () => {
      const { tools, tokens_in: sent, tokens_out: received } = await call(path, { method: "POST", json: { dry_run: true }, signal: this.signal });
      const content = [
        h("p", {}, "The definitions of ", counted(tools, "tool"), " are sent to ", h("b", {}, foreign(oneLine(this.state.model, 60))), "."),
        h("p", { class: "muted" }, `About ${count(sent)} tokens sent and ${count(received)} received, once.`),
      ];
      if (!(await ask("Let the model write texts?", content, { accept: "Write" }))) return;
      await this.follow(await call(path, { method: "POST", json: {}, signal: this.signal }));
    });
  }

  async follow(task) {
    const path = `v1/tasks/${encodeURIComponent(task.id)}`;
    const cancel = h("button", { type: "button", class: "link", onclick: () => call(path, { method: "DELETE" }).catch(() => {}) }, "Cancel");
    this.isWriting = true;
    while (task.status === "running") {
      const bar = h("progress", { max: Math.max(task.total, 1), value: task.done, "aria-label": "Progress" });
      this.draw(h("p", {}, bar, h("span", { class: "muted" }, ` ${count(task.done)} of ${count(task.total)} `), cancel));
      await pause(ASK_EVERY_MS, this.signal);
      task = await call(path, { signal: this.signal });
    }
    this.isWriting = false;
    const { changed, failed } = task.result;
    announce(`Texts of ${counted(changed, "tool")} written`);
    await this.show();
    if (task.error || failed > 0) this.element.append(h("p", { class: "notice warn", role: "status" }, `${counted(failed, "tool")} got no texts. `, task.error && foreign(task.error.message)));
  }

  async measure() {
    await attempt("Not measured", async () => {
      const measured = await call(ofCatalog(this.catalog, "/enrich/measure"), { signal: this.signal });
      this.measured = measuredView(measured, this.catalog);
      this.draw();
    });
  }
}

/** Texts that the model wrote and that a person has to read first. */
function heldView({ held, held_texts: texts }) {
  const rows = texts.map(({ id, text, speaks_of: other }) => h("li", {}, h("q", {}, foreign(text)), " for ", foreign(oneLine(id, 80)), " speaks of ", foreign(oneLine(other, 80))));
  return held > 0 && h("details", { class: "notice warn" }, h("summary", {}, `${counted(held, "text")} not stored: they speak of other servers' tools`), h("ul", { class: "plain" }, rows));
}

function measuredView({ tools, found_within: depth, with_texts: withTexts, without_texts: without, worst }, catalog) {
  const share = (number) => `${Math.round((100 * number) / Math.max(tools, 1))} %`;
  const rows = worst.map(({ id, text, place, first }) => h("li", {},
    h("a", { href: address("catalog", { c: catalog, tool: id }) }, foreign(oneLine(id, 80))),
    place ? ` is hit ${count(place)} for ` : " is not found for ", h("q", {}, foreign(text)), first && [", behind ", foreign(oneLine(first, 80))]));
  return h("div", { class: "notice", role: "status" },
    h("p", {}, `Of what people would say, ${share(withTexts)} find their tool among the first ${depth}; ${share(without)} without texts.`),
    h("p", { class: "muted" }, `One text of each of ${counted(tools, "tool")} was kept aside and searched for.`),
    rows.length > 0 && [h("p", {}, "Farthest from what people would say; better descriptions help most here:"), h("ul", { class: "plain" }, rows)]);
}

async function attempt(failed, action) {
  try {
    await action();
  } catch (error) {
    if (!isAbort(error)) await tell(failed, error);
  }
}
