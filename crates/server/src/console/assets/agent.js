/** Screen Agent: a chat, the tools that the model holds, and earlier conversations. */

import { call } from "./api.js";
import { Chat, ofConversation } from "./chat.js";
import { ask, tell } from "./dialog.js";
import { announce, h, icon, oneStop, replace } from "./dom.js";
import { address, here, note } from "./place.js";
import { dates, foreign, oneLine } from "./text.js";

const PAGE = 50;
/** From here on there is room for all panels at once. */
const WIDE = "(min-width: 1001px)";

/** The screen goes on while another one is looked at, and with it its runs. */
let kept = null;

export function agent(root, params, { name }) {
  kept ??= new AgentScreen(name);
  kept.mount(root, params);
  return kept;
}

class AgentScreen {
  constructor(catalog) {
    this.catalog = catalog;
    this.list = [];
    this.hasMore = false;
    /** Chats with a run or a draft that another one was opened over. */
    this.chats = new Set();
    this.chat = null;
    this.onKey = (event) => this.key(event);
    this.onVisible = () => { if (document.visibilityState === "visible") this.loadList(); };
    this.draw();
  }

  draw() {
    this.names = h("ul", {});
    this.more = h("button", { type: "button", class: "link", hidden: true, onclick: () => this.loadMore() }, "More");
    this.earlier = h("details", { class: "side-panel" },
      h("summary", {}, "Conversations"),
      h("a", { class: "new", href: address("agent", {}), onclick: () => this.chat?.input.focus() }, icon("plus"), "New conversation"),
      h("nav", { "aria-label": "Conversations" }, this.names), this.more);
    this.tools = h("details", { class: "side-panel toolbox" }, h("summary", {}, "Toolbox"));
    this.model = h("span", { class: "muted model" });
    this.advice = h("div", { class: "notice warn advice", hidden: true },
      h("b", {}, "No model was chosen. "), "Questions go to a model on this machine, if one answers at the usual address. To choose one: ",
      h("code", {}, "toolscout serve --llm URL --model NAME"));
    this.center = h("div", { class: "center" });
    this.box = h("div", { class: "agent" }, h("h1", { class: "sr" }, "Agent"), this.earlier, this.center, this.tools);
    for (const panel of [this.earlier, this.tools]) panel.open = matchMedia(WIDE).matches;
  }

  mount(root, params) {
    this.root = root;
    root.classList.add("wide");
    replace(root, this.box);
    document.addEventListener("keydown", this.onKey);
    document.addEventListener("visibilitychange", this.onVisible);
    this.goTo(params);
    this.loadList();
    this.loadAgent();
  }

  /** Says which model answers, before anything is typed. */
  async loadAgent() {
    try {
      const { available, model } = await call("v1/agent");
      if (!available) this.showNoAgent();
      replace(this.model, model && ["Model ", h("b", {}, foreign(oneLine(model, 80)))]);
      this.advice.hidden = !available || model !== null;
    } catch {
      // The list says what is wrong.
    }
  }

  /** Another screen is shown; runs go on. */
  stop() {
    this.root.classList.remove("wide");
    document.removeEventListener("keydown", this.onKey);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  /** Is called when the server is back. */
  again() {
    this.loadList();
    this.loadAgent();
    this.chat.resume();
  }

  goTo(params) {
    this.open(params.get("conversation") ?? "");
    return true;
  }

  open(id) {
    if (this.chat?.id === id && (id !== "" || this.chat.turns === 0)) {
      this.show();
      return;
    }
    this.leaveChat();
    const known = [...this.chats].find((chat) => chat.id === id);
    this.chat = known ?? new Chat(id, this.catalog, () => this.chatChanged());
    if (!known && id !== "") this.chat.load();
    this.show();
  }

  /** A chat with a run or a draft is come back to; others are read again. */
  leaveChat() {
    if (!this.chat) return;
    if (this.chat.isRunning || this.chat.hasDraft) this.chats.add(this.chat);
    else {
      this.chats.delete(this.chat);
      this.chat.close();
    }
  }

  show() {
    const { chat } = this;
    this.title = h("h2", {});
    this.remove = h("button", { type: "button", class: "quiet", onclick: () => this.deleteChat() }, "Delete");
    replace(this.center, h("header", { class: "chat-head" }, this.title, this.model, this.remove), this.advice, chat.element);
    replace(this.tools, h("summary", {}, "Toolbox"), chat.toolbox.body);
    chat.follow();
    this.drawList();
    if (matchMedia("(hover: hover)").matches) chat.input.focus();
  }

  chatChanged() {
    const isShown = here().screen === "agent" && this.center.contains(this.chat.element);
    if (isShown && this.chat.id !== "") note("agent", { conversation: this.chat.id });
    for (const chat of this.chats) if (chat !== this.chat && !chat.isRunning && !chat.hasDraft) this.chats.delete(chat);
    this.loadList();
  }

  async loadList() {
    try {
      const { conversations } = await call(`v1/agent/conversations?limit=${PAGE}`);
      this.list = conversations;
      this.hasMore = conversations.length === PAGE;
      if (this.isAway) {
        this.isAway = false;
        this.show();
      }
      this.drawList();
    } catch (error) {
      if (error.code === "agent_not_ready") this.showNoAgent();
      else if (error.status !== 0) replace(this.names, h("li", { class: "muted" }, foreign(error.message)));
    }
  }

  async loadMore() {
    try {
      const { conversations } = await call(`v1/agent/conversations?limit=${PAGE}&offset=${this.list.length}`);
      this.list.push(...conversations);
      this.hasMore = conversations.length === PAGE;
      this.drawList();
    } catch (error) {
      await tell("No more conversations", error);
    }
  }

  drawList() {
    const running = new Set([...this.chats, this.chat].filter((chat) => chat.isRunning).map(({ id }) => id));
    const items = this.list.map(({ id, title, turns, updated_ms: updated }) => h("li", {},
      h("a", { href: address("agent", { conversation: id }), "aria-current": id === this.chat.id && "page", title: dates.format(updated) },
        h("span", { class: "conversation" }, foreign(oneLine(title, 90) || "…")),
        running.has(id) ? h("span", { class: "badge accent" }, "running") : h("span", { class: "number" }, turns))));
    replace(this.names, items.length > 0 ? items : h("li", { class: "muted" }, "None yet."));
    oneStop(this.names);
    this.more.hidden = !this.hasMore;
    const known = this.list.find(({ id }) => id === this.chat.id);
    replace(this.title, known ? foreign(oneLine(known.title, 120)) : "New conversation");
    this.remove.hidden = this.chat.id === "";
  }

  /** The server answers, and has no agent. */
  showNoAgent() {
    this.isAway = true;
    replace(this.names, h("li", { class: "muted" }, "None."));
    replace(this.center, h("div", { class: "empty", role: "alert" }, icon("send"), h("h2", {}, "No agent here"),
      h("p", {}, "This server has no agent, or is still starting it. Start it with a model:"),
      h("pre", {}, "toolscout serve --llm URL --model NAME"),
      h("p", { class: "muted" }, "The URL is that of any OpenAI-compatible endpoint; ", h("code", {}, "--llm script:FILE"), " plays back a file, without a model."),
      h("button", { type: "button", class: "primary", onclick: () => this.loadList() }, "Look again")));
  }

  async deleteChat() {
    const { chat } = this;
    const title = this.list.find(({ id }) => id === chat.id)?.title ?? chat.id;
    const content = [h("p", {}, foreign(oneLine(title, 120)), " is deleted with all its turns", chat.isBusy() ? ", and its run is stopped." : ".")];
    if (!(await ask("Delete this conversation?", content, { accept: "Delete", isDangerous: true }))) return;
    try {
      await call(ofConversation(chat.id), { method: "DELETE" });
    } catch (error) {
      await tell("Not deleted", error);
      return;
    }
    chat.input.value = "";
    announce("Deleted");
    location.hash = address("agent", {});
    this.loadList();
  }

  /** Escape stops the run that is seen, if it is one of this tab. */
  key(event) {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (this.chat.isRunning) this.chat.stop();
  }
}
