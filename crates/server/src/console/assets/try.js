/** A form that calls a tool through the gate. */

import { call, isAbort, ofCatalog } from "./api.js";
import { argumentsView } from "./arguments.js";
import { announce, h, icon, replace } from "./dom.js";
import { gateView, pretty } from "./gate.js";
import { inputsOf } from "./inputs.js";
import { count, counted, foreign } from "./text.js";

/** Characters of a result that are drawn. */
const SHOWN = 60_000;

/**
 * A form for a tool.
 * @param {object} tool of the API
 * @param {string} catalog
 * @param {AbortSignal} signal
 */
export function tryForm(tool, catalog, signal) {
  const inputs = inputsOf(tool.inputSchema);
  const answer = h("div", { class: "try-answer" });
  const failed = h("p", { class: "notice error", role: "alert", hidden: true });
  const send = async (more) => {
    failed.hidden = true;
    let given;
    try {
      given = inputs.read();
    } catch (error) {
      return complain(failed, error);
    }
    const buttons = [...form.querySelectorAll("button")];
    for (const button of buttons) button.disabled = true;
    form.setAttribute("aria-busy", "true");
    try {
      const said = await call(ofCatalog(catalog, "/calls"), { method: "POST", json: { tool: tool.id, arguments: given, ...more }, signal });
      replace(answer, answerView(said, given, (approval) => send({ approve: approval })));
      answer.scrollIntoView({ block: "nearest" });
      announce(OUTCOMES[said.outcome] ?? said.outcome);
    } catch (error) {
      if (isAbort(error)) return;
      complain(failed, error);
    }
    for (const button of buttons) button.disabled = false;
    form.removeAttribute("aria-busy");
  };
  const calling = h("button", { class: "primary", hidden: true }, icon("send"), "Call");
  const said = h("span", { class: "muted" });
  sayWhether(calling, said, tool, catalog, signal);
  const form = h("form", { class: "try", novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    send(calling.hidden ? { dry_run: true } : {});
  } },
  inputs.element,
  h("div", { class: "approval-buttons" },
    calling,
    h("button", { type: "button", onclick: () => send({ dry_run: true }) }, "Dry run"),
    said));
  return h("div", {}, form, failed, answer);
}

/** Offers to call the tool if this server can, and says what the gate decides. */
async function sayWhether(calling, said, tool, catalog, signal) {
  const dryRun = { tool: tool.id, arguments: {}, dry_run: true };
  // An answer that does not come is no reason to offer less: the call itself says what is wrong.
  const answer = await call(ofCatalog(catalog, "/calls"), { method: "POST", json: dryRun, signal }).catch(() => ({ callable: true }));
  if (signal.aborted) return;
  calling.hidden = !answer.callable;
  said.textContent = answer.callable
    ? "The gate decides, as it does for an agent; the call is in the audit log."
    : "This server cannot call it: its MCP server is not connected, or it came from a file without an address. A dry run checks the arguments and shows what the gate decides.";
}

function complain(box, error) {
  box.hidden = false;
  replace(box, foreign(error.message));
  error.input?.focus();
}

const OUTCOMES = { called: "called", refused: "not called", needs_approval: "waits for your approval", dry_run: "dry run, nothing was called" };

function answerView(said, given, approve) {
  const { outcome, result } = said;
  const isGood = outcome === "dry_run" ? !result || result.status === "ok" : result?.status === "ok";
  const state = outcome === "needs_approval" ? "asks" : isGood ? "ok" : "error";
  return h("article", { class: "call tried", "data-state": state, "aria-label": "What came of the call" },
    h("header", { class: "head" }, h("span", { class: "call-state" }, OUTCOMES[outcome] ?? outcome), outcome === "called" && h("span", { class: "number muted" }, `${count(result.took_ms)} ms`)),
    h("div", { class: "call-gate" }, gateView(said)),
    h("div", {}, argumentsView(given, said.arguments, said.changes, { isWhole: outcome === "needs_approval" })),
    outcome === "needs_approval" && h("div", { class: "approval" },
      h("p", {}, h("b", {}, "May this call be made? "), "It is sent exactly as it stands here."),
      h("div", { class: "approval-buttons" }, h("button", { type: "button", class: "primary", onclick: () => approve(said.approval) }, icon("check"), "Approve and call"))),
    result && resultView(result));
}

function resultView({ content, error_code: code, truncated_from_bytes: from }) {
  const text = pretty(content);
  return h("div", {},
    h("div", { class: "call-gate" }, code ? h("span", { class: "badge warn" }, code.replaceAll("_", " ")) : h("span", { class: "muted" }, "Result")),
    h("pre", { tabindex: 0, "aria-label": "Result" }, foreign(text.slice(0, SHOWN))),
    from && h("p", { class: "muted" }, `The beginning of ${counted(from, "byte")}, as a model would get it.`));
}
