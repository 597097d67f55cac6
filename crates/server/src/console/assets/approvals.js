/** Calls that wait for a person: of MCP clients that cannot ask theirs, and of the agent's runs. */

import { call, isAbort, pause } from "./api.js";
import { argumentsView } from "./arguments.js";
import { announce, h, replace, skeleton } from "./dom.js";
import { decisionView, gateView } from "./gate.js";
import { notShown } from "./panels.js";
import { counted, foreign, long, oneLine } from "./text.js";
import { lookNow, notifyButton, timeLeft } from "./waiting.js";

const LOOK_MS = 2000;

export function approvals(root, params, list, { may }) {
  const view = new ApprovalsView(root, may("approve"));
  view.follow();
  return view;
}

class ApprovalsView {
  constructor(root, mayDecide) {
    Object.assign(this, { root, aborter: new AbortController(), cards: new Map() });
    this.said = h("p", { class: "muted", role: "status" });
    this.head = h("div", { class: "export-head" }, this.said, mayDecide && notifyButton());
    this.list = h("div", { class: "waiting-calls" });
    replace(root, skeleton(2, "short"));
  }

  stop() {
    this.aborter.abort();
  }

  /** Is called when the server is back. */
  again() {
    this.stop();
    this.aborter = new AbortController();
    this.follow();
  }

  /** Looks again and again, since calls come at any time. */
  async follow() {
    const { signal } = this.aborter;
    try {
      for (;;) {
        this.show((await call("v1/approvals", { signal })).approvals);
        await pause(LOOK_MS, signal);
      }
    } catch (error) {
      if (!isAbort(error)) replace(this.root, notShown(error, () => this.again()));
    }
  }

  show(waiting) {
    if (!this.said.isConnected) replace(this.root, this.head, this.list);
    this.said.textContent = waiting.length > 0 ? `${counted(waiting.length, "call")} ${waiting.length === 1 ? "waits" : "wait"} for a person.` : "No call waits. Calls of MCP clients that cannot ask their person are decided on here, and those of the agent.";
    const open = new Set(waiting.map(({ id }) => id));
    for (const [id, card] of this.cards) {
      if (open.has(id)) continue;
      card.remove();
      this.cards.delete(id);
    }
    for (const { id, expires_in_ms: left } of waiting) {
      const shown = this.cards.get(id)?.querySelector(".time-left");
      if (shown) shown.textContent = timeLeft(left);
    }
    for (const one of waiting.filter(({ id }) => !this.cards.has(id))) {
      const card = this.card(one);
      this.cards.set(one.id, card);
      this.list.append(card);
    }
  }

  card(one) {
    const decide = async (approve, reason) => {
      await call(`v1/approvals/${encodeURIComponent(one.id)}`, { method: "POST", json: { approve, reason } });
      announce(approve ? "Approved" : "Refused");
      this.cards.get(one.id)?.remove();
      lookNow();
    };
    const by = [one.owner, one.client].filter(Boolean).join(", ");
    return h("article", { class: "card call", "data-state": "asks", "aria-label": `Call of ${oneLine(one.tool, 80)}` },
      h("header", { class: "head" }, h("span", { class: "name" }, foreign(oneLine(one.tool, 120))), h("span", { class: "muted" }, foreign(by)),
        h("span", { class: "number muted" }, h("span", { class: "time-left" }, timeLeft(one.expires_in_ms)), " left")),
      h("div", { class: "call-gate" }, gateView({ class: one.class, decision: "ask", rule: one.rule })),
      one.description && h("div", { class: "muted" }, long(one.description)),
      argumentsView(one.arguments, one.arguments, one.changes ?? [], { isWhole: true }),
      decisionView(decide));
  }
}
