/** What the gate says of a call, for people. */

import { h, icon, replace } from "./dom.js";
import { foreign, oneLine } from "./text.js";

/** What a tool of each class does. */
export const CLASSES = { read_only: "only reads", state_changing: "changes something", destructive: "may destroy" };
/** What the gate decides about a call. */
export const DECISIONS = { allow: "allowed", ask: "asks a person", dry_run: "dry run", deny: "denied" };

/** The class of a tool, the decision about a call of it, and the rule that made it. */
export function gateView({ class: kind, decision, rule, answer, warnings = [] }) {
  return [
    h("span", { class: kind === "destructive" ? "badge warn" : "badge" }, CLASSES[kind] ?? kind),
    h("span", { class: decision === "deny" ? "badge warn" : "badge" }, answered(answer) ?? DECISIONS[decision] ?? decision),
    h("span", { class: "muted" }, "rule ", h("code", {}, foreign(oneLine(rule, 200)))),
    answer?.reason && h("span", { class: "muted" }, "reason: ", foreign(oneLine(answer.reason, 300))),
    warnings.map((warning) => h("span", { class: "warn-text" }, "warning: ", foreign(oneLine(warning, 300)))),
  ];
}

/**
 * The buttons that approve or refuse a call. `send` tells the server, given whether it is approved and the reason of a refusal;
 * that it failed is shown while `isOpen`.
 */
export function decisionView(send, { isOpen = () => true, beside = null } = {}) {
  const reason = h("input", { type: "text", placeholder: "Reason, for the model", "aria-label": "Reason of a refusal", autocomplete: "off", maxlength: 2000 });
  const failed = h("p", { class: "notice error", role: "alert", hidden: true });
  const buttons = [
    h("button", { type: "button", class: "primary", onclick: () => decide(true) }, icon("check"), "Approve"),
    h("button", { type: "button", onclick: () => decide(false) }, "Refuse"),
  ];
  const decide = async (approve) => {
    for (const button of buttons) button.disabled = true;
    failed.hidden = true;
    try {
      await send(approve, approve ? "" : reason.value);
    } catch (error) {
      if (!isOpen()) return;
      for (const button of buttons) button.disabled = false;
      failed.hidden = false;
      replace(failed, foreign(error.message));
    }
  };
  return h("div", { class: "approval" }, h("div", { class: "approval-buttons" }, buttons, reason, beside), failed);
}

function answered(answer) {
  if (!answer) return null;
  if (answer.answer === "expired") return "nobody answered in time";
  return `${answer.answer} by ${oneLine(answer.by, 60)}`;
}

/** JSON over several lines; any other text as it is. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
