/** Dialogs. Escape closes them, except those of what is shown only once. The focus goes back to where it was. */

import { h } from "./dom.js";
import { foreign } from "./text.js";

/**
 * Shows a form in a dialog.
 * @param {string} title
 * @param {Array} content
 * @param {{accept: string, refuse?: ?string, isDangerous?: boolean, isClosedByEscape?: boolean}} buttons without `refuse` there is
 *   only one; `isClosedByEscape` is false for what is shown only once
 * @param {(form: HTMLFormElement) => boolean} [isComplete] whether it may be accepted
 * @returns {Promise<FormData|null>} the fields, or null where it was closed
 */
export function ask(title, content, { accept, refuse = "Cancel", isDangerous = false, isClosedByEscape = true }, isComplete = () => true) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: "dialog-title" }, title);
    const accepting = h("button", { class: isDangerous ? "danger" : "primary" }, accept);
    const refusing = refuse && h("button", { type: "button", onclick: () => dialog.close() }, refuse);
    const form = h("form", { method: "dialog" }, heading, content, h("div", { class: "buttons" }, refusing, accepting));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    const check = () => { accepting.disabled = !isComplete(form); };
    let answer = null;
    form.addEventListener("input", check);
    form.addEventListener("submit", () => { answer = new FormData(form); });
    if (!isClosedByEscape) keepOpen(dialog);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    check();
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Escape does not close the dialog. A browser closes it at a second Escape even if `cancel` was prevented, so the key is taken. */
function keepOpen(dialog) {
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.preventDefault();
  });
}

/** Says that something failed, and why. */
export const tell = (title, error) => ask(title, h("p", {}, foreign(error.message)), { accept: "Close", refuse: null });

/** A field of a form with its label above it. */
export function field(label, name, properties = {}, hint = "") {
  const id = `field-${name}`;
  const input = h("input", { id, name, autocomplete: "off", spellcheck: "false", "aria-describedby": hint !== "" && `${id}-hint`, ...properties });
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("small", { id: `${id}-hint`, class: "muted" }, hint));
}

/** Asks for a key of the API. */
export async function askForKey(failure) {
  const reason = failure.code === "missing_key" ? "This server answers only with an API key." : `${failure.message}.`;
  const content = [
    h("p", {}, reason),
    field("API key", "key", { type: "password", required: true, autofocus: true }),
    h("p", { class: "muted" }, "It is kept in this tab until you close it. ", h("code", {}, "toolscout keys create"), " makes one."),
  ];
  const given = await ask("A key, please", content, { accept: "Use this key", refuse: "Not now" }, (form) => form.elements.key.value.trim() !== "");
  return given?.get("key").trim() ?? "";
}
