/** Screen Catalog: what is in the catalogs, and how it gets there and out again. */

import { call, isAbort, ofCatalog } from "./api.js";
import { ask, field, tell } from "./dialog.js";
import { debounce, h, icon, oneStop, replace } from "./dom.js";
import { embedderName } from "./hit.js";
import { rowOf, ToolList } from "./list.js";
import { chooseFiles, loadFiles, takeDrops } from "./load.js";
import { address, go, note, remember, remembered } from "./place.js";
import { Review } from "./review.js";
import { connectionNotice, statePoint } from "./servers.js";
import { bytes, count, counted, foreign, oneLine } from "./text.js";
import { CatalogTexts } from "./texts.js";
import { showTool } from "./tool.js";

const PAGE = 200;
/** The most that the API gives at once. */
const LARGE_PAGE = 1000;
/** What the list has: all kinds, as the tools of a server and its prompts belong together. */
const KINDS = "tool,prompt,resource,skill,agent";
const DEBOUNCE_MS = 150;
/** How often the statistics are read while tools are being embedded. */
const PROGRESS_MS = 1000;
/** How often the connections of servers are looked at, while the page is seen. */
const CONNECTIONS_MS = 3000;
const MOST_TAGS = 30;
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}";

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[], name: string}} catalogs
 */
export function catalog(root, params, catalogs) {
  const view = new CatalogScreen(root, params, catalogs);
  view.start();
  return view;
}

class CatalogScreen {
  constructor(root, params, { list, name, allowed }) {
    Object.assign(this, { root, list, name, allowed, isOwner: allowed.may("admin") });
    this.read(params);
    this.aborter = new AbortController();
    this.toolAborter = new AbortController();
    this.stats = null;
    this.servers = [];
    this.tags = { tags: [], total: 0 };
    this.texts = new CatalogTexts(this.name, this.isOwner && allowed.may("llm"), this.aborter.signal);
    this.review = new Review(this.name, this.isOwner ? () => this.refresh() : null);
    this.tools = new ToolList((id) => this.openTool(id));
    this.tools.onload = () => this.showCount();
    this.tools.onscroll = debounce(DEBOUNCE_MS, (top) => remember({ list: top }));
    this.refilter = debounce(DEBOUNCE_MS, () => this.fill());
  }

  read(params) {
    this.server = params.get("server") ?? "";
    this.part = params.get("name") ?? "";
    this.tag = params.get("tag") ?? "";
    this.tool = params.get("tool") ?? "";
    this.isReview = params.get("view") === "changes";
  }

  start() {
    this.draw();
    this.fill();
    this.known = this.watchServers();
    this.showDetail();
    this.showView();
    this.tools.restore(remembered("list"));
    this.loadStats();
    this.loadTags();
  }

  stop() {
    this.aborter.abort();
    this.toolAborter.abort();
    this.tools.stop();
    this.review.stop();
    this.refilter.cancel();
    this.tools.onscroll.cancel();
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.root.classList.remove("wide");
  }

  /** Is called when the server is back. */
  again() {
    this.refresh();
  }

  /** Goes to another place on this screen; false where it has to be drawn anew. */
  goTo(params) {
    const before = this.filters;
    const wasReview = this.isReview;
    const left = remembered("list");
    this.tools.onscroll.cancel();
    if (params.get("c") !== this.name) return false;
    this.read(params);
    if (this.filters !== before) {
      this.filterBox.value = this.part;
      this.showSide();
      this.showConnections();
      this.fill();
    }
    if (this.isReview !== wasReview || (this.isReview && this.filters !== before)) this.showView();
    this.showDetail();
    if (this.filters !== before) this.tools.restore(left);
    return true;
  }

  get filters() {
    return [this.server, this.tag, this.part].join("\n");
  }

  place(changes = {}) {
    return { c: this.name, server: this.server, tag: this.tag, name: this.part, tool: this.tool, view: this.isReview ? "changes" : "", ...changes };
  }

  get current() {
    return this.list.find(({ name }) => name === this.name);
  }

  draw() {
    this.root.classList.add("wide");
    this.side = h("aside", { class: "side-panel", "aria-label": "Catalogs and servers" });
    this.facts = h("div", { class: "facts" });
    this.loads = h("div", { class: "loads" });
    this.connections = h("div", { class: "connections" });
    this.toReview = h("div", { class: "to-review" });
    this.counted = h("span", { class: "muted", role: "status" });
    this.filterBox = h("input", { type: "search", value: this.part, placeholder: "Filter by name", "aria-label": "Filter by name", maxlength: 200, autocomplete: "off", spellcheck: "false", oninput: () => this.filtered() });
    this.detail = h("section", { class: "detail", "aria-label": "Tool" });
    const middle = h("section", { class: "middle", "aria-label": "Tools of the catalog" },
      h("div", { class: "catalog-head" }, h("h1", {}, foreign(this.name)), this.isOwner && this.buttons()),
      this.current?.damaged && h("p", { class: "notice error" }, "This catalog cannot be opened: ", foreign(this.current.damaged)),
      this.current?.settings.description && h("p", { class: "muted" }, foreign(this.current.settings.description)),
      this.facts, this.texts.element, this.loads, this.connections, this.toReview,
      this.filter = h("div", { class: "filter" }, this.filterBox, this.counted),
      this.tools.element, this.review.element);
    this.layout = h("div", { class: "catalog" }, this.side, middle, this.detail);
    replace(this.root, this.layout);
    if (this.isOwner) takeDrops(this.layout, (files) => this.add(files));
    this.showSide();
  }

  buttons() {
    return h("div", { class: "actions" },
      h("button", { type: "button", class: "primary", onclick: () => chooseFiles((files) => this.add(files)) }, icon("plus"), "Add tools"),
      h("button", { type: "button", class: "quiet", onclick: () => this.deleteCatalog() }, "Delete catalog"));
  }

  showSide() {
    const focused = this.side.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const catalogs = this.list.map(({ name, tools, damaged }) => sideLink(address("catalog", { c: name }), name, damaged ? "damaged" : count(tools), name === this.name));
    const servers = this.servers.map((server) => sideLink(address("catalog", this.place({ server: server.name, tool: "" })), server.name || "(none)", count(server.tools), server.name !== "" && server.name === this.server, statePoint(server)));
    const all = sideLink(address("catalog", this.place({ server: "", tool: "" })), "All servers", this.stats ? count(this.stats.tools) : "", this.server === "");
    const tags = this.tags.tags.map((tag) => sideLink(address("catalog", this.place({ tag: tag.name === this.tag ? "" : tag.name, tool: "", view: "" })), tag.name, count(tag.count), tag.name === this.tag));
    const chosen = this.tag !== "" && !this.tags.tags.some(({ name }) => name === this.tag) && sideLink(address("catalog", this.place({ tag: "", tool: "" })), this.tag, "", true);
    replace(this.side,
      h("div", { class: "side-head" }, h("h2", {}, "Catalogs"), this.isOwner && h("button", { type: "button", class: "quiet", onclick: () => this.createCatalog(), "aria-label": "New catalog", title: "New catalog" }, icon("plus"))),
      h("ul", {}, catalogs),
      h("div", { class: "side-head" }, h("h2", {}, "Servers"), this.stats && h("span", { class: "muted number" }, count(this.servers.length))),
      h("ul", { class: "servers" }, all, servers),
      (tags.length > 0 || chosen) && [h("div", { class: "side-head" }, h("h2", {}, "Tags"), h("span", { class: "muted number" }, count(this.tags.total))), h("ul", { class: "tags" }, chosen, tags)]);
    for (const list of this.side.querySelectorAll("ul")) oneStop(list);
    if (focused) [...this.side.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  }

  async loadTags() {
    try {
      this.tags = await call(ofCatalog(this.name, `/tags?limit=${MOST_TAGS}`), { signal: this.aborter.signal });
      this.showSide();
    } catch {
      // Without tags there is one filter less; what is wrong is said by the statistics.
    }
  }

  /** Looks at the servers again and again. */
  async watchServers() {
    clearTimeout(this.watch);
    if (document.visibilityState === "visible") await this.loadServers();
    if (!this.aborter.signal.aborted) this.watch = setTimeout(() => this.watchServers(), CONNECTIONS_MS);
  }

  async loadServers() {
    let servers;
    try {
      ({ servers } = await call(ofCatalog(this.name, "/servers"), { signal: this.aborter.signal }));
    } catch {
      // The connection to this server, or the statistics, say what is wrong.
      return;
    }
    const before = JSON.stringify(this.servers);
    if (JSON.stringify(servers) === before) return;
    const tools = (list) => list.map((server) => [server.name, server.tools]).join();
    const isOther = before !== "[]" && tools(servers) !== tools(this.servers);
    this.servers = servers;
    if (this.stats) this.showFacts();
    this.showSide();
    this.showConnections();
    if (this.isReview && !this.review.element.contains(document.activeElement)) this.showView();
    if (!isOther) return;
    this.loadStats();
    // A list that somebody reads does not move under the eyes.
    if (this.tools.element.scrollTop === 0) this.fill();
  }

  showConnections() {
    replace(this.connections, connectionNotice(this.servers, this.server));
    const of = this.server ? this.servers.filter(({ name }) => name === this.server) : this.servers;
    const sum = (name) => of.reduce((all, server) => all + server[name], 0);
    const [changes, blocked] = [sum("changes"), sum("blocked")];
    replace(this.toReview, changes > 0 && h("p", { class: "notice" },
      `${counted(changes, "tool")} to review${blocked > 0 ? `, ${count(blocked)} blocked` : ""}. `,
      h("a", { class: "link", href: address("catalog", this.place({ view: this.isReview ? "" : "changes", tool: "" })) }, this.isReview ? "Back to the tools" : "Review")));
  }

  /** Shows the tools, or what changed in them. */
  showView() {
    this.filter.hidden = this.isReview;
    this.tools.element.hidden = this.isReview;
    this.review.element.hidden = !this.isReview;
    this.showConnections();
    if (this.isReview) this.review.show(this.server);
    else this.review.stop();
  }

  async loadStats() {
    clearTimeout(this.timer);
    const { signal } = this.aborter;
    try {
      this.stats = await call(ofCatalog(this.name, "/stats"), { signal });
    } catch (error) {
      if (!isAbort(error)) replace(this.facts, h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
      return;
    }
    if (this.current) this.current.tools = this.stats.tools;
    this.texts.show();
    this.showFacts();
    this.showSide();
    if (this.stats.pending_embeddings > 0) this.timer = setTimeout(() => this.loadStats(), PROGRESS_MS);
  }

  showFacts() {
    const { tools, servers, vectors, pending_embeddings: pending, disk_bytes: disk } = this.stats;
    const left = this.timeLeft(pending);
    // Servers without tools are in the list at the side, so they count here too.
    const facts = [[count(tools), "tools"], [count(Math.max(this.servers.length, servers.length)), "servers"], [bytes(disk), "on disk"]];
    const embedders = vectors.map(({ name, count: number }) => h("li", { title: name }, `${embedderName(name)} `, h("span", { class: "number" }, count(number))));
    replace(this.facts,
      h("dl", { class: "tiles" }, facts.map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, value)))),
      embedders.length > 0 && h("div", { class: "vectors" }, h("span", { class: "muted" }, "vectors"), h("ul", {}, embedders)),
      pending > 0 && h("div", { class: "embedding", role: "status" },
        h("progress", { max: Math.max(tools, 1), value: Math.max(tools - pending, 0), "aria-label": "Embedded tools" }),
        h("span", {}, `${counted(pending, "tool")} still to be embedded${left}; by words they are found already.`)));
  }

  /** How long embedding still takes, as fast as it went since the page looked first; empty while that is unknown. */
  timeLeft(pending) {
    if (!this.firstPending || pending > this.firstPending.count) this.firstPending = { count: pending, at: Date.now() };
    const done = this.firstPending.count - pending;
    if (done === 0 || pending === 0) return "";
    const seconds = (pending * (Date.now() - this.firstPending.at)) / 1000 / done;
    return seconds < 60 ? ", less than a minute left" : `, about ${counted(Math.round(seconds / 60), "minute")} left`;
  }

  filtered() {
    this.part = this.filterBox.value.trim();
    note("catalog", this.place());
    this.refilter();
  }

  /** Fills the list with what passes the filters. */
  fill() {
    const filters = { kind: KINDS, ...(this.server && { server: this.server }), ...(this.tag && { tag: this.tag }), ...(this.part && { name: this.part }) };
    const source = async (cursor, signal, isFar) => {
      const query = new URLSearchParams({ limit: isFar ? LARGE_PAGE : PAGE, ...filters, ...(cursor && { cursor }) });
      const page = await call(ofCatalog(this.name, `/tools?${query}`), { signal });
      return { rows: page.tools.map(rowOf), cursor: page.next_cursor ?? null };
    };
    this.tools.begin(source, this.expected());
    this.tools.choose(this.tool);
    this.showCount();
  }

  /** How many tools the list will have, where it is known before they are read. */
  expected() {
    if (this.part || (this.tag && this.server)) return null;
    if (this.tag) return this.tags.tags.find(({ name }) => name === this.tag)?.count ?? null;
    if (this.server) return this.stats?.servers.find(({ name }) => name === this.server)?.count ?? null;
    return this.stats?.tools ?? this.current?.tools ?? null;
  }

  showCount() {
    this.counted.textContent = `${this.tools.said()} ${this.tools.said() === "1" ? "tool" : "tools"}`;
  }

  openTool(id) {
    go("catalog", this.place({ tool: id }));
  }

  showDetail() {
    this.toolAborter.abort();
    this.toolAborter = new AbortController();
    this.layout.classList.toggle("has-tool", this.tool !== "");
    this.tools.choose(this.tool);
    if (!this.tool) return replace(this.detail, h("p", { class: "muted hint" }, `Choose a tool to see its definition.${this.isOwner ? " Drop a file anywhere to add tools." : ""}`));
    const close = () => {
      go("catalog", this.place({ tool: "" }));
      this.tools.element.focus();
    };
    const removed = () => {
      close();
      this.refresh();
    };
    const isOfServer = async (id) => {
      await this.known;
      return this.servers.some(({ name, connection, changes }) => id.startsWith(`${name}/`) && (connection || changes > 0));
    };
    const decided = () => {
      this.refresh();
      this.showDetail();
    };
    return showTool(this.detail, this.name, this.tool, { close, removed, decided, isOfServer, allowed: this.allowed, signal: this.toolAborter.signal });
  }

  async add(files) {
    // The figures follow the load, which may take minutes.
    const following = setInterval(() => this.loadStats(), PROGRESS_MS);
    const hasChanged = await loadFiles(files, this.name, this.loads, this.aborter.signal).finally(() => clearInterval(following));
    if (hasChanged) this.refresh();
  }

  async refresh() {
    await Promise.all([this.loadStats(), this.loadServers(), this.loadTags()]);
    if (this.aborter.signal.aborted) return;
    this.fill();
    if (this.isReview) this.showView();
  }

  async createCatalog() {
    const content = field("Name", "name", { required: true, maxlength: 64, pattern: NAME, autofocus: true }, "Letters, digits, - _ and . after a letter or digit.");
    const isComplete = (form) => form.elements.name.value !== "" && form.elements.name.checkValidity();
    const given = await ask("New catalog", content, { accept: "Create" }, isComplete);
    if (!given) return;
    const name = given.get("name");
    await this.attempt("Not created", async () => {
      await call("v1/catalogs", { method: "POST", json: { name } });
      go("catalog", { c: name });
    });
  }

  async deleteCatalog() {
    const content = [
      h("p", {}, "This deletes ", h("b", {}, foreign(this.name)), ` with ${counted(this.stats?.tools ?? this.current?.tools ?? 0, "tool")}, its settings, its memory and the feedback on it. It cannot be undone.`),
      field(`Type ${this.name} to confirm`, "name", { autofocus: true }),
    ];
    const isComplete = (form) => form.elements.name.value === this.name;
    if (!(await ask("Delete this catalog?", content, { accept: "Delete", isDangerous: true }, isComplete))) return;
    await this.attempt("Not deleted", async () => {
      await call(ofCatalog(this.name), { method: "DELETE" });
      go("catalog", {});
    });
  }

  async attempt(failed, action) {
    try {
      await action();
    } catch (error) {
      await tell(failed, error);
    }
  }
}

function sideLink(href, name, number, isCurrent, point = null) {
  return h("li", {}, h("a", { href, "aria-current": isCurrent && "true" }, h("span", {}, point, foreign(oneLine(name, 80))), h("span", { class: "number" }, number)));
}
