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
const LOOK_MS = 2000;
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

  /** Shows the turns that are stored. */
  async load() {
    clearTimeout(this.timer);
    if (this.turns === 0) replace(this.list, skeleton(3, "tall"));
    try {
      const { turns } = await call(ofConversation(this.id));
      if (this.isRunning) return;
      this.turns = 0;
      this.toolbox.isContinued = true;
      this.toolbox.draw();
      for (const stored of turns) this.newTurn(stored.question, null).recall(stored);
      this.isElsewhere = turns.at(-1)?.status === "running";
      if (this.isElsewhere) {
        this.list.append(h("p", { class: "notice" }, "This turn runs in another tab or program. Its answer is shown here once it has ended."));
        this.timer = setTimeout(() => this.load(), LOOK_MS);
      }
      this.follow();
      this.showButton();
    } catch (error) {
      if (this.turns > 0) return;
      replace(this.list, h("div", { class: "empty", role: "alert" }, h("h2", {}, "This conversation cannot be shown"), h("p", {}, foreign(error.message)), h("a", { href: address("agent", {}) }, "Begin a new one")));
    }
  }

  /** Sends what is in the box. It stays there until the server has taken it. */
  async send(text = this.input.value) {
    const query = text.trim();
    if (query === "" || this.isBusy()) return;
    this.isRunning = true;
    this.aborter = new AbortController();
    replace(this.notice);
    this.showButton();
    try {
      const json = { query, ...(this.id && { conversation: this.id }) };
      const response = await request("v1/agent/chat", { method: "POST", json, accept: "text/event-stream", signal: this.aborter.signal });
      this.id = response.headers.get("x-conversation-id") ?? this.id;
      if (this.input.value.trim() === query) this.input.value = "";
      this.isAtEnd = true;
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
    turn.add(this.broken(query));
    announce("The answer broke off");
    this.follow();
    lost();
  }

  broken(query) {
    const again = h("button", { type: "button", onclick: () => { notice.remove(); this.send(query); } }, "Ask again");
    const reload = h("button", { type: "button", onclick: () => this.load() }, "Show what is stored");
    const notice = h("div", { class: "notice warn", role: "alert" }, h("p", {}, h("b", {}, "The answer broke off. "), "The connection ended before the answer did, and the server stops a run that nobody listens to. What came so far is stored in this conversation."),
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
    if (this.id === "") {
      this.aborter?.abort();
      return;
    }
    try {
      await call("v1/agent/stop", { method: "POST", json: { conversation: this.id } });
    } catch {
      // The run ends with its connection, too.
      this.aborter?.abort();
    }
  }

  /** Ends what goes on without being seen. */
  close() {
    clearTimeout(this.timer);
    this.aborter?.abort();
  }

  get hasDraft() {
    return this.input.value.trim() !== "";
  }
}
