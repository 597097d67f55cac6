/** Adding tools from files, in any format that the API reads. */

import { call, isAbort, ofCatalog, pause } from "./api.js";
import { ask, field } from "./dialog.js";
import { announce, h, icon, replace } from "./dom.js";
import { bytes, count, counted, foreign, oneLine } from "./text.js";

const ACCEPTED = ".json,.yaml,.yml,.ndjson,.jsonl";
const YAML = /\.ya?ml$/iu;
const MOST_FILES = 50;
const MOST_FAILURES = 100;
const ASK_EVERY_MS = 300;

/** Lets a person choose files. */
export function chooseFiles(chosen) {
  const input = h("input", { type: "file", accept: ACCEPTED, multiple: true });
  input.addEventListener("change", () => chosen(Array.from(input.files)));
  input.click();
}

/** Takes files that are dropped onto an element. */
export function takeDrops(element, dropped) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  element.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    element.classList.add("drop");
  });
  element.addEventListener("dragleave", (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("drop");
  });
  element.addEventListener("drop", (event) => {
    element.classList.remove("drop");
    if (!hasFiles(event)) return;
    event.preventDefault();
    dropped(Array.from(event.dataTransfer.files));
  });
}

/**
 * Asks once more, and adds the tools of the files one after another.
 * @param {File[]} files
 * @param {string} catalog
 * @param {HTMLElement} box shows the progress
 * @param {AbortSignal} signal
 * @returns {Promise<boolean>} whether something may have changed
 */
export async function loadFiles(files, catalog, box, signal) {
  const taken = files.slice(0, MOST_FILES);
  if (taken.length === 0) return false;
  const names = taken.slice(0, 8).map((file) => h("li", {}, foreign(oneLine(file.name)), h("span", { class: "muted" }, ` ${bytes(file.size)}`)));
  const content = [
    h("ul", { class: "plain" }, names, taken.length > 8 && h("li", { class: "muted" }, `and ${taken.length - 8} more`)),
    files.length > MOST_FILES && h("p", { class: "notice warn" }, `Only the first ${MOST_FILES} of ${files.length} files are added.`),
    field("Server of tools that name none", "server", { placeholder: "the name of the file", maxlength: 100 }, "Tools with the same id are replaced."),
  ];
  const given = await ask(`Add to ${catalog}?`, content, { accept: "Add tools" });
  if (!given) return false;
  for (const file of taken) {
    const server = given.get("server").trim() || stem(file.name);
    await loadFile(file, server, catalog, box, signal);
    if (signal.aborted) break;
  }
  return true;
}

const stem = (name) => name.replace(/\.[^.]*$/u, "");

async function loadFile(file, server, catalog, box, signal) {
  const card = new LoadCard(file.name);
  box.prepend(card.element);
  const query = new URLSearchParams({ default_server: server, skip_invalid: "true" });
  const options = { method: "POST", body: file, type: YAML.test(file.name) ? "application/yaml" : "application/json", prefer: "respond-async", signal };
  try {
    let task = await call(ofCatalog(catalog, `/tools?${query}`), options);
    card.cancel = () => call(`v1/tasks/${encodeURIComponent(task.id)}`, { method: "DELETE" });
    for (;;) {
      card.show(task);
      if (task.status !== "running") return;
      await pause(ASK_EVERY_MS, signal);
      task = await call(`v1/tasks/${encodeURIComponent(task.id)}`, { signal });
    }
  } catch (error) {
    if (!isAbort(error)) card.fail(error.message, error.items ?? []);
  }
}

const ENDED = { succeeded: "Added", failed: "Failed", cancelled: "Cancelled" };

/** The progress of one file. */
class LoadCard {
  constructor(name) {
    this.body = h("div", {}, h("progress", { "aria-label": "Sending" }));
    const close = h("button", { type: "button", class: "quiet close", "aria-label": "Put away", onclick: () => this.element.remove() }, icon("cross"));
    this.element = h("section", { class: "load", "aria-label": "Load" }, close, h("b", {}, foreign(oneLine(name))), this.body);
    this.cancel = () => {};
  }

  show(task) {
    const isRunning = task.status === "running";
    const { added, changed, unchanged, failed } = task.result;
    const counts = [[added, "added"], [changed, "replaced"], [unchanged, "unchanged"], [failed, "failed"]].filter(([number]) => number > 0);
    const said = counts.map(([number, what]) => `${count(number)} ${what}`).join(", ") || "nothing in it";
    const stop = h("button", { type: "button", class: "link", onclick: () => this.cancel() }, "Cancel");
    const progress = h("progress", { max: Math.max(task.total, 1), value: task.done, "aria-label": "Progress" });
    replace(this.body,
      isRunning ? [progress, h("span", { class: "muted" }, ` ${count(task.done)} of ${count(task.total)} `), stop]
        : h("p", { class: task.status === "succeeded" && failed === 0 ? "" : "warn-text" }, `${ENDED[task.status] ?? task.status}: ${said}.`),
      task.error && h("p", { class: "notice error" }, foreign(task.error.message)),
      !isRunning && failures(task.failures, task.result.failed));
    if (!isRunning) announce(`${ENDED[task.status]}: ${said}`);
  }

  fail(message, items) {
    replace(this.body, h("p", { class: "notice error", role: "alert" }, foreign(message)), failures(items, items.length));
  }
}

function failures(items, total) {
  if (items.length === 0) return null;
  const rows = items.slice(0, MOST_FAILURES).map(({ item, id, error }) => h("li", {}, h("b", {}, `Item ${item}`), id && [" ", foreign(oneLine(id))], ": ", foreign(oneLine(error?.message ?? "failed", 400))));
  return h("details", {}, h("summary", {}, counted(total, "failed item")), h("ul", { class: "plain" }, rows, total > rows.length && h("li", { class: "muted" }, `and ${count(total - rows.length)} more`)));
}
