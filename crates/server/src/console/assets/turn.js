/** One turn: a question, and the events of its run in the order in which they come. */

import { announce, copyButton, h, icon, replace } from "./dom.js";
import { Plan } from "./plan.js";
import { prose } from "./prose.js";
import { count, counted, foreign, oneLine } from "./text.js";
import { ToolCall } from "./tool_call.js";

const ENDS = { answered: "Answered", stopped: "Stopped", expired: "It took too long", failed: "Failed", interrupted: "The server ended first", running: "Running" };
/** Texts are drawn anew with their last words; more often than this nobody can read. */
const REDRAW_MS = 60;
const MOST_REFERENCES = 50;
const MOST_HITS = 50;
const MOST_NAMED = 6;

const HANDLERS = {
  text: (turn, event) => turn.write("text", event.content),
  thinking: (turn, event) => turn.write("thinking", event.content),
  tool_search: (turn, event) => turn.searched(event),
  tools_injected: (turn, event) => turn.injected(event),
  tools_evicted: (turn, event) => turn.evicted(event),
  context_compacted: (turn, event) => turn.compacted(event),
  tool_call: (turn, event) => turn.called(event),
  approval_required: (turn, event) => turn.calls.get(event.call)?.asks(event),
  gate: (turn, event) => turn.calls.get(event.id)?.decide(event),
  tool_result: (turn, event) => turn.answered(event),
  plan: (turn, event) => turn.planned(event),
  plan_outcome: (turn, event) => turn.plan?.finish(event.steps),
  reference: (turn, event) => turn.add(references(event.content)),
  recommend: (turn, event) => turn.recommended(event.content),
  error: (turn, event) => turn.failed(event.content),
  done: (turn, event) => turn.done(event),
};

export class Turn {
  /**
   * @param {string} question
   * @param {number} number within the conversation
   * @param {?import("./toolbox.js").Toolbox} toolbox null for a turn of the past
   * @param {(question: string) => void} onAsk is called with a question that follows
   */
  constructor(question, number, toolbox, onAsk) {
    this.number = number;
    this.toolbox = toolbox;
    this.onAsk = onAsk;
    this.calls = new Map();
    this.plan = null;
    this.tail = null;
    this.answer = "";
    this.isDone = false;
    /** Whether it is a turn of the past, which is not read out. */
    this.isPast = false;
    /** Whether its events are those that the server keeps, with results cut. */
    this.isKept = false;
    /** Of a turn that is looked at while it runs elsewhere: how much of it was taken. */
    this.taken = 0;
    this.lastLength = 0;
    this.parts = h("div", { class: "parts" });
    this.foot = h("footer", { class: "turn-foot" });
    this.element = h("section", { class: "turn", "aria-label": `Turn ${number}` },
      h("div", { class: "question" }, h("span", { class: "sr" }, "You: "), foreign(question, [], { class: "lines" })),
      this.parts, this.foot);
  }

  take(event) {
    HANDLERS[event.type]?.(this, event);
  }

  /** Begins with what has happened so far of a turn that runs elsewhere. */
  join(events) {
    this.isKept = true;
    this.isPast = true;
    this.catchUp(events);
    this.isPast = false;
  }

  /** Takes what is new of all events so far, of which the last one may have become longer. */
  catchUp(events) {
    const last = events[this.taken - 1];
    if (last?.content?.length > this.lastLength) this.write(last.type, last.content.slice(this.lastLength));
    for (const event of events.slice(this.taken)) this.take(event);
    this.taken = Math.max(this.taken, events.length);
    const text = events[this.taken - 1];
    this.lastLength = text?.type === "text" || text?.type === "thinking" ? text.content.length : Infinity;
  }

  /** Shows the calls that wait for a person, and no others. */
  waiting(approvals) {
    for (const approval of approvals) {
      if (!this.calls.has(approval.call)) this.called({ id: approval.call, name: approval.tool, arguments: approval.arguments });
      const call = this.calls.get(approval.call);
      if (call.approvalId !== approval.id) call.asks(approval);
    }
    const open = new Set(approvals.map(({ id }) => id));
    for (const call of this.calls.values()) if (call.status === "asks" && !open.has(call.approvalId)) call.decided("Decided");
  }

  say(text) {
    if (!this.isPast) announce(text);
  }

  /** Adds a part; a text that goes on after it begins anew. */
  add(part) {
    this.closeText();
    this.parts.append(part);
  }

  write(kind, content) {
    if (this.tail?.kind !== kind) {
      const box = h("div", { class: "prose" });
      this.add(kind === "text" ? box : h("details", { class: "thinking" }, h("summary", {}, "Thinking"), box));
      this.tail = { kind, box, text: "", timer: 0 };
    }
    this.tail.text += content;
    if (kind === "text") this.answer += content;
    this.tail.timer ||= setTimeout(() => this.drawText(), REDRAW_MS);
  }

  drawText() {
    if (!this.tail) return;
    this.tail.timer = 0;
    replace(this.tail.box, prose(this.tail.text));
    this.onGrow?.();
  }

  closeText() {
    if (!this.tail) return;
    clearTimeout(this.tail.timer);
    this.drawText();
    this.tail = null;
  }

  searched(event) {
    this.toolbox?.searched(event);
    const asked = [...event.queries, ...(event.select ?? [])];
    const found = event.hits.length === 0 ? "no tool matches" : counted(event.hits.length, "tool");
    const hits = h("ol", {}, event.hits.slice(0, MOST_HITS).map((hit) => h("li", {}, foreign(oneLine(hit, 100)))));
    this.add(h("details", { class: "step" },
      h("summary", {}, icon("search"), h("span", {}, "Searched ", asked.flatMap((query, at) => [at > 0 && ", ", h("b", {}, foreign(oneLine(query, 160)))]), h("span", { class: "muted" }, ` · ${found}`))),
      event.no_match && h("p", { class: "muted" }, foreign(oneLine(event.no_match, 400))), hits));
    this.say(`Searched: ${found}`);
  }

  injected(event) {
    this.toolbox?.injected(event);
    this.add(h("p", { class: "step plain-step" }, icon("plus"), h("span", {}, `Injected ${counted(event.tools.length, "tool")}`, h("span", { class: "muted" }, ` · ${counted(event.tokens, "token")} · `, named(event.tools)))));
  }

  evicted(event) {
    this.toolbox?.takenOut(event, this.number, this.isPast ? null : new Date());
    this.add(h("p", { class: "step plain-step" }, icon("cross"), h("span", {}, `Evicted ${counted(event.tools.length, "tool")}`, h("span", { class: "muted" }, " · ", named(event.tools)))));
  }

  compacted(event) {
    const why = event.reason === "refused" ? "the model refused it as too long" : `the limit is ${count(event.limit)}`;
    this.add(h("p", { class: "step plain-step" }, icon("cross"), h("span", {}, "Shortened the prompt", h("span", { class: "muted" }, ` · from ${count(event.tokens_before)} to ${counted(event.tokens, "token")}: ${why}`))));
  }

  called(event) {
    const call = new ToolCall(event);
    const step = this.plan?.stepOf(event.id) ?? null;
    if (step !== null) {
      const { plan } = this;
      call.onState = (state) => plan.setState(step, state);
      call.onState("runs");
    }
    this.calls.set(event.id, call);
    this.toolbox?.called(event.name);
    this.add(call.element);
    this.say(`Calls ${oneLine(event.name, 80)}`);
  }

  answered(event) {
    const call = this.calls.get(event.id);
    call?.finish(event, this.isKept);
    this.say(`${oneLine(event.name, 80)}: ${event.status === "ok" ? "done" : "failed"}`);
  }

  planned(event) {
    this.plan = new Plan(event);
    this.add(this.plan.element);
    this.say(`A plan of ${counted(event.steps.length, "step")}`);
  }

  recommended(questions) {
    const buttons = questions.slice(0, 8).map((question) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.onAsk(question) }, foreign(oneLine(question, 200)))));
    this.add(h("ul", { class: "follow-ups", "aria-label": "Questions that follow" }, buttons));
  }

  failed(message) {
    this.add(h("div", { class: "notice error", role: "alert" }, foreign(oneLine(message, 1500))));
  }

  done({ status, figures }) {
    this.end();
    this.isDone = true;
    replace(this.foot, this.figures(status, figures), this.answer !== "" && copyButton(() => this.answer, "Copy answer"));
    announce(ENDS[status] ?? status);
  }

  figures(status, figures) {
    const saved = figures.tokens_saved > 0 && `${count(figures.tokens_saved)} tokens of tools saved`;
    const facts = [`${count(figures.total_ms)} ms`, figures.rounds > 0 && counted(figures.rounds, "round"), figures.searches > 0 && (figures.searches === 1 ? "1 search" : `${figures.searches} searches`),
      figures.tokens_in + figures.tokens_out > 0 && `${figures.tokens_estimated ? "about " : ""}${count(figures.tokens_in)} + ${counted(figures.tokens_out, "token")}`, saved].filter(Boolean);
    return h("span", { class: status === "answered" ? "number" : "number warn-text" }, [ENDS[status] ?? status, ...facts].join(" · "));
  }

  /** Nothing more comes. */
  end() {
    this.closeText();
    for (const call of this.calls.values()) call.end();
    this.plan?.end();
  }

  /**
   * Shows a turn of the past.
   * @param {object} stored
   * @param {?{events: object[], truncated: boolean}} kept of its events, if they were asked for
   */
  recall({ answer, status, error, figures }, kept) {
    this.isPast = true;
    this.isKept = true;
    const events = kept?.events ?? [];
    if (events.length === 0 && figures.tools_used.length > 0) this.add(h("p", { class: "step plain-step" }, icon("check"), h("span", {}, "Called ", named(figures.tools_used))));
    for (const event of events) this.take(event);
    if (kept?.truncated) this.add(h("p", { class: "muted" }, "More happened in this turn than is kept."));
    // A turn that was stopped in a call has its last text before it.
    const isShown = status !== "answered" && events.some(({ type, content }) => type === "text" && content.endsWith(answer));
    if (answer !== "" && !isShown) this.write("text", answer);
    if (error) this.failed(error);
    if (figures.references.length > 0) this.add(references(figures.references));
    this.end();
    replace(this.foot, this.figures(status, figures), answer !== "" && copyButton(() => answer, "Copy answer"));
    this.isDone = status !== "running";
  }
}

/** The first tools of a list; the toolbox has all. */
function named(tools) {
  const rest = tools.length - MOST_NAMED;
  return [foreign(tools.slice(0, MOST_NAMED).map((tool) => oneLine(tool, 80)).join(", ")), rest > 0 && ` and ${rest} more`];
}

/** The web pages that tools quoted. */
function references(list) {
  const rows = list.slice(0, MOST_REFERENCES).map(({ url, title, content }) => h("li", {},
    h("details", {}, h("summary", {}, foreign(oneLine(title || url, 160))), h("p", { class: "muted" }, foreign(oneLine(content, 500)))), source(url)));
  return h("section", { class: "references", "aria-label": "Sources" }, h("h3", {}, "Sources"), h("ol", {}, rows));
}

/** A link to a web page; whatever else a tool gives as an address is shown alone. */
function source(url) {
  const said = foreign(oneLine(url, 160));
  if (!URL.canParse(url) || !/^https?:$/u.test(new URL(url).protocol)) return h("code", {}, said);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, said);
}
