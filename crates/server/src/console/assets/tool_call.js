/** One call of a tool: its arguments, what the gate decided, and its result. */

import { call as ask } from "./api.js";
import { argumentsView, changed } from "./arguments.js";
import { announce, h, replace } from "./dom.js";
import { decisionView, gateView, pretty } from "./gate.js";
import { count, foreign, long, oneLine } from "./text.js";

const STATES = { runs: "running", asks: "waits for you", ok: "done", error: "failed", ended: "cut off" };

export class ToolCall {
  /** @param {{id: string, name: string, arguments: unknown}} event */
  constructor(event) {
    this.id = event.id;
    this.name = event.name;
    this.given = event.arguments;
    this.timer = 0;
    this.approvalId = "";
    this.state = h("span", { class: "call-state" });
    this.took = h("span", { class: "number muted" });
    this.gate = h("div", { class: "call-gate" });
    this.arguments = h("div", {}, argumentsView(this.given, this.given, []));
    this.question = h("div", {});
    this.approval = h("div", {});
    this.result = h("div", {});
    this.element = h("article", { class: "call", "aria-label": `Call of ${oneLine(event.name, 80)}` },
      h("header", { class: "head" }, this.state, h("span", { class: "name" }, foreign(oneLine(event.name, 120))), this.took),
      this.gate, this.question, this.arguments, this.approval, this.result);
    this.setState("runs");
  }

  setState(state) {
    this.status = state;
    this.element.dataset.state = state;
    this.state.textContent = STATES[state];
    this.onState?.(state);
  }

  /** The gate asks a person. */
  asks(event) {
    clearInterval(this.timer);
    this.approvalId = event.id;
    this.setState("asks");
    replace(this.gate, gateView({ class: event.class, decision: "ask", rule: event.rule }));
    replace(this.arguments, argumentsView(this.given, event.arguments, event.changes ?? [], { isWhole: true }));
    const left = h("span", { class: "muted number" });
    const decide = async (approve, reason) => {
      await ask("v1/agent/approve", { method: "POST", json: { id: event.id, approve, reason } });
      this.decided(approve ? "Approved; the call is made." : "Refused.");
    };
    replace(this.question, h("div", { class: "approval-question" },
      h("p", {}, h("b", {}, "May this call be made? "), "It is sent exactly as it stands here, to ", h("code", {}, foreign(event.tool)), "."),
      event.description && h("div", { class: "muted" }, long(event.description))));
    replace(this.approval, decisionView(decide, { isOpen: () => this.status === "asks", beside: left }));
    this.countDown(left, Date.now() + event.expires_in_ms);
    announce(`${oneLine(event.tool, 80)} waits for your approval`);
  }

  countDown(box, end) {
    const tick = () => {
      const seconds = Math.max(Math.ceil((end - Date.now()) / 1000), 0);
      box.textContent = seconds > 0 ? `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left` : "time is up";
      if (seconds === 0) clearInterval(this.timer);
    };
    tick();
    this.timer = setInterval(tick, 1000);
  }

  decided(said) {
    clearInterval(this.timer);
    if (this.status !== "asks") return;
    this.closeApproval();
    this.setState("runs");
    announce(said);
  }

  closeApproval() {
    replace(this.question);
    replace(this.approval);
  }

  /** The gate has decided. */
  decide(event) {
    this.decided("Decided");
    replace(this.gate, gateView(event));
    const changes = event.changes ?? [];
    replace(this.arguments, argumentsView(this.given, changed(this.given, changes), changes));
  }

  /**
   * The one result.
   * @param {boolean} isKept whether only what the server keeps of it is known
   */
  finish(event, isKept) {
    this.decided("Decided");
    const isOk = event.status === "ok";
    this.setState(isOk ? "ok" : "error");
    this.took.textContent = `${count(event.took_ms)} ms`;
    const text = pretty(event.content);
    const kept = isKept && event.content.endsWith("…") && h("p", { class: "muted" }, "Only the beginning of it is kept.");
    const cut = event.truncated_from_bytes && h("p", { class: "muted" }, `The model got only the beginning of ${event.truncated_from_bytes} bytes.`);
    const code = event.error_code && h("span", { class: "badge warn" }, event.error_code.replaceAll("_", " "));
    const details = h("details", { class: "result" },
      h("summary", {}, code, code && " ", h("span", {}, "Result "), h("span", { class: "preview" }, foreign(oneLine(event.content, 140)))),
      h("pre", { tabindex: 0, "aria-label": "Result" }, foreign(text)), kept, cut);
    details.open = !isOk;
    replace(this.result, details);
  }

  /** The run has ended without a result. */
  end() {
    clearInterval(this.timer);
    if (this.status !== "runs" && this.status !== "asks") return;
    this.closeApproval();
    this.setState("ended");
  }
}
