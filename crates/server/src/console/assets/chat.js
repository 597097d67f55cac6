/** One conversation: its turns, the box for the next request, and the run that answers. */

import { call, isAbort, request } from "./api.js";
import { lost } from "./connection.js";
import { announce, h, icon, replace, skeleton } from "./dom.js";
import { events } from "./events.js";
import { address } from "./place.js";
import { foreign } from "./text.js";
import { Toolbox } from "./toolbox.js";
import { Turn } from "./turn.js";

/** How often a turn that runs elsewhere is looked at. */
const LOOK_MS = 1000;
/** Turns whose events are asked for at once; those before them show theirs when asked to. */
const TURNS_WITH_EVENTS = 12;
/** So near to its end the list of turns follows what comes. */
const NEAR_PX = 60;
const EXAMPLES = ["Will it rain in Bergen tomorrow?", "Which issues are open in my repository?"];

export const ofConversation = (id) => `v1/agent/conversations/${encodeURIComponent(id)}`;

export class Chat {
  /**
   * @param {string} id empty for a new conversation
   * @param {string} catalog of the agent
   * @param {() => void} changed is called when a run begins or ends
   */
  constructor(id, catalog, changed) {
    this.id = id;
    this.catalog = catalog;
    this.changed = changed;
    this.turns = 0;
    this.isRunning = false;
    this.isElsewhere = false;
    this.isBroken = false;
    this.isClosed = false;
    this.wantsStop = false;
    this.isAtEnd = true;
    this.aborter = null;
    this.timer = 0;
    this.toolbox = new Toolbox(catalog);
    this.draw();
  }

  draw() {
    this.list = h("div", { class: "turns", tabindex: "-1", onscroll: () => this.noteEnd() }, this.hint());
    this.notice = h("div", { class: "ask-notice" });
    this.input = h("textarea", { rows: 1, "aria-label": "Request", placeholder: "What should be done?", onkeydown: (event) => this.key(event) });
    this.button = h("button", { class: "primary send" });
    this.form = h("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); if (this.isBusy()) this.stop(); else this.send(); } }, this.input, this.button);
    const keys = h("p", { class: "keys muted wide-only" }, h("kbd", {}, "Enter"), " sends, ", h("kbd", {}, "Shift Enter"), " breaks the line, ", h("kbd", {}, "Escape"), " stops");
    this.element = h("section", { class: "chat", "aria-label": "Conversation" }, this.list, h("div", { class: "ask-area" }, this.notice, this.form, keys));
    this.showButton();
  }

  hint() {
    const examples = EXAMPLES.map((text) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.propose(text) }, text)));
    return h("div", { class: "empty" }, icon("send"), h("h2", {}, "Ask, and watch the tools"),
      h("p", { class: "muted" }, "The model searches this catalog, and calls what it finds as far as the gate lets it. For example:"), h("ul", { class: "examples" }, examples));
  }

  isBusy() {
    return this.isRunning || this.isElsewhere;
  }

  showButton() {
    const isBusy = this.isBusy();
    this.button.className = isBusy ? "send" : "primary send";
    replace(this.button, icon(isBusy ? "stop" : "send"), isBusy ? "Stop" : "Send");
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (this.isBusy()) announce("Wait for the end of this turn, or stop it with Escape");
    else this.send();
  }

  /** Puts a text into the box, after what is typed there already. */
  propose(text) {
    this.input.value = [this.input.value.trim(), text].filter(Boolean).join("\n");
    this.input.focus();
  }

  noteEnd() {
    this.isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR_PX;
  }

  follow() {
    if (this.isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  newTurn(question, toolbox) {
    if (this.turns === 0) replace(this.list);
    this.turns += 1;
    const turn = new Turn(question, this.turns, toolbox, (text) => this.propose(text));
    turn.onGrow = () => this.follow();
    this.list.append(turn.element);
    return turn;
  }

  /** The server is back: what it goes on with is shown. */
  async resume() {
    if (this.id === "" || this.isRunning) return;
    if (this.turns === 0) await this.load();
    else if (this.isBroken && (await this.isAlive())) await this.load();
  }

  /** Whether the server goes on with the turn. */
  async isAlive() {
    try {
      return (await call(ofConversation(this.id))).running;
    } catch {
      return false;
    }
  }

  /** Shows the turns that are stored. */
  async load() {
    clearTimeout(this.timer);
    if (this.turns === 0) replace(this.list, skeleton(3, "tall"));
    try {
      const { turns, running, approvals } = await call(ofConversation(this.id));
      const from = Math.max(turns.length - TURNS_WITH_EVENTS, 0);
      const kept = await Promise.all(turns.map(({ number }, index) => (index < from ? null : this.eventsOf(number))));
      if (this.isRunning) return;
      this.turns = 0;
      this.isBroken = false;
      this.toolbox.clear(from > 0);
      turns.forEach((stored, index) => this.recall(stored, kept[index], { running, approvals, isOld: index < from }));
      this.follow();
      this.showButton();
    } catch (error) {
      if (this.turns > 0) return;
      replace(this.list, h("div", { class: "empty", role: "alert" }, h("h2", {}, "This conversation cannot be shown"), h("p", {}, foreign(error.message)), h("a", { href: address("agent", {}) }, "Begin a new one")));
    }
  }

  /** Shows a turn that is stored, or that runs though not in this page. */
  recall(stored, kept, { running, approvals, isOld }) {
    const turn = this.newTurn(stored.question, isOld ? null : this.toolbox);
    this.isElsewhere = stored.status === "running" && running;
    if (!this.isElsewhere) {
      const status = stored.status === "running" ? "interrupted" : stored.status;
      turn.recall({ ...stored, status }, kept);
      if (isOld && stored.figures.searches + stored.figures.tools_used.length > 0) turn.foot.append(this.showSteps(turn, stored));
      return;
    }
    this.list.append(h("p", { class: "notice" }, "This turn goes on at the server: it was begun in another tab, or before this page was loaded."));
    turn.join(kept?.events ?? []);
    turn.waiting(approvals);
    this.lookLater(turn, stored.number);
  }

  lookLater(turn, number) {
    if (!this.isClosed) this.timer = setTimeout(() => this.look(turn, number), LOOK_MS);
  }

  showSteps(turn, stored) {
    const button = h("button", { type: "button", class: "link", onclick: async () => {
      button.disabled = true;
      const kept = await this.eventsOf(stored.number);
      const again = new Turn(stored.question, stored.number, null, (text) => this.propose(text));
      again.recall(stored, kept);
      turn.element.replaceWith(again.element);
    } }, "Show its steps");
    return button;
  }

  /** What is kept of the events of a turn; null where it cannot be had. */
  async eventsOf(number) {
    try {
      return await call(`${ofConversation(this.id)}/turns/${number}/events`);
    } catch {
      return null;
    }
  }

  /** Shows what came of a turn that runs elsewhere, until its end. */
  async look(turn, number) {
    try {
      const { turns, running, approvals } = await call(ofConversation(this.id));
      if (this.isRunning) return;
      const last = turns.at(-1);
      if (last?.number !== number || last.status !== "running" || !running) {
        await this.load();
        return;
      }
      const kept = await this.eventsOf(number);
      if (this.isRunning) return;
      turn.catchUp(kept?.events ?? []);
      turn.waiting(approvals);
      this.follow();
    } catch {
      // Said by the connection; it is looked at again.
    }
    this.lookLater(turn, number);
  }

  /** Sends what is in the box. It stays there until the server has taken it. */
  async send(text = this.input.value) {
    const query = text.trim();
    if (query === "" || this.isBusy()) return;
    this.isRunning = true;
    this.wantsStop = false;
    this.isBroken = false;
    this.aborter = new AbortController();
    replace(this.notice);
    this.showButton();
    try {
      // So that a page that is loaded again finds the run, and the calls that wait for approval.
      const json = { query, detached: true, ...(this.id && { conversation: this.id }) };
      const response = await request("v1/agent/chat", { method: "POST", json, accept: "text/event-stream", signal: this.aborter.signal });
      this.id = response.headers.get("x-conversation-id") ?? this.id;
      if (this.input.value.trim() === query) this.input.value = "";
      this.isAtEnd = true;
      if (this.wantsStop) this.stop();
      this.changed();
      await this.watch(response, query);
    } catch (error) {
      if (!isAbort(error)) this.refused(error);
    } finally {
      this.isRunning = false;
      this.showButton();
      this.changed();
    }
  }

  /** Shows the events of a run until its end. */
  async watch(response, query) {
    const turn = this.newTurn(query, this.toolbox);
    this.follow();
    try {
      for await (const event of events(response)) {
        turn.take(event);
        this.follow();
      }
    } catch {
      // Whatever broke it, what follows is the same.
    }
    if (turn.isDone) return;
    turn.end();
    if (this.aborter.signal.aborted) return;
    this.isBroken = true;
    turn.add(this.broken(query));
    announce("The answer broke off");
    this.follow();
    lost();
  }

  broken(query) {
    const again = h("button", { type: "button", onclick: () => { notice.remove(); this.send(query); } }, "Ask again");
    const reload = h("button", { type: "button", onclick: () => this.load() }, "Show what became of it");
    const notice = h("div", { class: "notice warn", role: "alert" }, h("p", {}, h("b", {}, "The answer broke off. "), "The connection ended before the answer did. If the server still runs, it goes on with this turn, and stores it in this conversation."),
      h("div", { class: "approval-buttons" }, again, reload));
    return notice;
  }

  refused(error) {
    const isOthers = ["unknown_conversation", "not_your_conversation"].includes(error.code);
    const elsewhere = error.code === "conversation_busy" && " It runs in another tab or program.";
    replace(this.notice, h("div", { class: "notice error", role: "alert" }, foreign(error.message), ". ", elsewhere, " What you typed is still in the box. ",
      isOthers && h("button", { type: "button", class: "link", onclick: () => this.forget() }, "Send it as a new conversation")));
  }

  /** Begins a new conversation with what is in the box. */
  forget() {
    this.id = "";
    this.send();
  }

  async stop() {
    if (!this.isBusy()) return;
    announce("Stopping");
    // A run goes on without this page, so it is stopped as soon as its conversation is known.
    this.wantsStop = true;
    if (this.id === "") return;
    try {
      await call("v1/agent/stop", { method: "POST", json: { conversation: this.id } });
    } catch (error) {
      replace(this.notice, h("div", { class: "notice error", role: "alert" }, "Not stopped: ", foreign(error.message)));
    }
  }

  /** Ends what goes on without being seen. */
  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.aborter?.abort();
  }

  get hasDraft() {
    return this.input.value.trim() !== "";
  }
}
