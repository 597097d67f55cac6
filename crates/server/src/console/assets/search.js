/** Screen Search: a request as it is typed, and why each tool is where it is. */

import { answerView } from "./answer.js";
import { call, isAbort, ofCatalog } from "./api.js";
import { announce, copyButton, debounce, h, icon, replace, skeleton } from "./dom.js";
import { exportPanel } from "./export.js";
import { address, note, remember, remembered } from "./place.js";
import { readSettings, searchBody, settingsFields, writeSettings } from "./settings.js";
import { count, counted, foreign } from "./text.js";

/** Long enough that not every letter of a fast typist is a search, too short to be waited for. */
const DEBOUNCE_MS = 120;
const EXAMPLES = ["will it rain tomorrow", "open a ticket about a bug and tell the team", "convert 20 euros to yen", "createIssue"];

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{catalogs: object[], name: string}} catalogs what there is, and which one is shown
 */
export function search(root, params, catalogs) {
  const view = new SearchScreen(root, params, catalogs);
  view.start();
  return view;
}

class SearchScreen {
  constructor(root, params, { list, name, allowed }) {
    this.root = root;
    this.isOwner = allowed.may("admin");
    this.list = list;
    this.catalog = name;
    this.query = params.get("q") ?? "";
    this.settings = readSettings(params);
    this.others = params.has("compare") ? readSettings(params, "b.") : null;
    this.output = { format: params.get("format") ?? "openai", tokens: params.get("tokens") ?? "", isOpen: params.has("format") };
    this.opened = new Set(remembered("opened"));
    this.servers = [];
    this.answers = [null, null];
    this.aborter = new AbortController();
    this.loads = h("div");
    this.changes = h("div", { role: "status" });
    this.later = debounce(DEBOUNCE_MS, () => this.run());
  }

  start() {
    this.draw();
    this.loadServers();
    this.run();
    // A phone would open its keyboard over the page.
    if (matchMedia("(hover: hover)").matches) this.input.focus();
  }

  stop() {
    this.aborter.abort();
    this.later.cancel();
    Object.assign(this.root, { ondragover: null, ondrop: null });
  }

  /** Is called when the server is back. */
  again() {
    this.loadServers();
    this.run();
  }

  /** Adds the tools of files that are dropped, as the screen Catalog does. */
  async add(event) {
    event.preventDefault();
    const files = Array.from(event.dataTransfer.files);
    const { loadFiles } = await import("./load.js");
    if (!(await loadFiles(files, this.catalog, this.loads, this.aborter.signal))) return;
    this.list = (await call("v1/catalogs")).catalogs;
    this.draw();
    this.again();
  }

  draw() {
    this.input = h("input", {
      type: "search", id: "query", value: this.query, placeholder: "What should the tool do?", autocomplete: "off", spellcheck: "false",
      "aria-label": "Request", enterkeyhint: "search", oninput: () => this.typed(), onkeydown: (event) => this.keyInBox(event),
    });
    const names = this.list.map(({ name, tools }) => [name, `${name} (${count(tools)})`]);
    if (!this.list.some(({ name }) => name === this.catalog)) names.unshift([this.catalog, this.catalog]);
    const chooser = h("select", { "aria-label": "Catalog", onchange: (event) => this.chooseCatalog(event.target.value) },
      names.map(([value, caption]) => h("option", { value, selected: value === this.catalog }, caption)));
    const form = h("form", { class: "box", role: "search", onsubmit: (event) => { event.preventDefault(); this.later.cancel(); this.run(); } },
      icon("search"), this.input, h("span", { class: "select" }, chooser));
    this.columns = h("div", { class: "columns" });
    this.exporting = exportPanel(() => this.request(this.settings), this.output, () => this.noteAddress());
    this.compareButton = h("button", { type: "button", onclick: () => this.toggleCompare() });
    const link = copyButton(() => location.href, "Copy link");
    replace(this.root,
      h("h1", { class: "sr" }, "Search"),
      h("div", { class: "search-head" }, form, h("div", { class: "actions" }, this.compareButton, link)),
      this.loads, this.changes, this.columns, this.exporting.panel);
    this.root.onkeydown = (event) => this.keyInHits(event);
    if (this.isOwner) Object.assign(this.root, { ondragover: (event) => event.preventDefault(), ondrop: (event) => this.add(event) });
    this.drawColumns();
  }

  drawColumns() {
    this.compareButton.textContent = this.others ? "Stop comparing" : "Compare";
    this.compareButton.setAttribute("aria-pressed", String(this.others !== null));
    const sides = this.others ? [this.settings, this.others] : [this.settings];
    this.outputs = sides.map(() => h("div", { class: "answer" }));
    const names = ["A", "B"];
    this.columns.classList.toggle("two", sides.length === 2);
    replace(this.columns, sides.map((settings, index) => h("section", { class: "column", "aria-label": sides.length === 2 ? `Answer ${names[index]}` : "Answer" },
      sides.length === 2 && h("h2", { class: "side" }, names[index]),
      settingsFields(names[index], settings, this.servers, () => this.changed()),
      this.outputs[index])));
    this.show();
  }

  typed() {
    this.query = this.input.value;
    replace(this.changes);
    this.changed();
  }

  changed() {
    this.noteAddress();
    this.later();
  }

  noteAddress() {
    const { format, tokens, isOpen } = this.output;
    note("search", {
      c: this.catalog, q: this.query, ...writeSettings(this.settings),
      ...(this.others && { compare: "1", ...writeSettings(this.others, "b.") }),
      ...(isOpen && { format, tokens }),
    });
  }

  chooseCatalog(name) {
    this.catalog = name;
    this.settings.server = "";
    if (this.others) this.others.server = "";
    this.answers = [null, null];
    this.noteAddress();
    this.loadServers();
    this.run();
  }

  toggleCompare() {
    this.others = this.others ? null : { ...this.settings, mode: this.settings.mode === "lexical" ? "auto" : "lexical" };
    this.answers[1] = null;
    this.noteAddress();
    this.drawColumns();
    this.run();
  }

  async loadServers() {
    try {
      const { servers } = await call(ofCatalog(this.catalog, "/stats"));
      this.servers = servers.map(({ name }) => name).filter(Boolean);
      if (!this.columns.contains(document.activeElement)) this.drawColumns();
    } catch {
      // The search itself says what is wrong; without the list of servers it still works.
    }
  }

  /** What is searched for; nothing without a request. */
  request(settings) {
    const query = this.query.trim();
    // A person who tries searches out is not a user of the tools.
    return query === "" ? null : { catalog: this.catalog, body: { ...searchBody(query, settings), trial: true } };
  }

  /** Searches, and drops what an earlier search may still answer. */
  async run() {
    this.aborter.abort();
    this.aborter = new AbortController();
    const { signal } = this.aborter;
    const sides = this.others ? [this.settings, this.others] : [this.settings];
    if (!this.request(this.settings)) {
      this.answers = [null, null];
      this.show();
      return;
    }
    for (const output of this.outputs) output.setAttribute("aria-busy", "true");
    const found = await Promise.all(sides.map((settings) => this.answerTo(this.request(settings), signal)));
    if (signal.aborted) return;
    this.answers = found;
    this.show();
    this.exporting.refresh();
  }

  async answerTo({ catalog, body }, signal) {
    try {
      const answer = await call(ofCatalog(catalog, "/search"), { method: "POST", json: body, signal });
      // Feedback is accepted on this request alone, and the box may hold another one by then.
      return { ...answer, asked: body.query };
    } catch (error) {
      return isAbort(error) ? null : { failure: error };
    }
  }

  show() {
    this.outputs.forEach((output, index) => {
      const answer = this.answers[index];
      const other = index === 1 && this.answers[0]?.hits ? this.answers[0] : null;
      output.removeAttribute("aria-busy");
      if (!answer?.failure) output.classList.remove("outdated");
      if (answer?.failure) this.showFailure(output, answer.failure);
      else if (answer) replace(output, answerView(answer, { catalog: this.catalog, other, opened: this.opened, onToggle: (id, isOpen) => this.toggled(id, isOpen), onRight: (...given) => this.right(...given), onChange: this.isOwner ? (...given) => this.change(...given) : null }));
      else if (this.query.trim()) replace(output, skeleton(5, "tall"));
      else replace(output, index === 0 && this.startHint());
    });
    const first = this.answers[0];
    if (first?.hits?.length === 0) announce("No tool matches");
    else if (first?.hits) announce(first.match === "none" ? "No tool fits; the nearest ones are shown" : counted(first.hits.length, "hit"));
  }

  /** An earlier answer stays in sight while the server is away; the page says that it is. */
  showFailure(output, failure) {
    if (failure.status === 0 && output.querySelector(".hits")) {
      if (!output.querySelector(".outdated-note")) output.prepend(h("p", { class: "notice warn outdated-note", role: "status" }, "These hits are of an earlier request: the server does not answer."));
      output.classList.add("outdated");
      return;
    }
    const id = failure.requestId && h("small", { class: "muted" }, ` Request ${failure.requestId}`);
    replace(output, h("div", { class: "notice error", role: "alert" }, foreign(failure.message), id));
  }

  startHint() {
    const chosen = this.list.find(({ name }) => name === this.catalog);
    if (chosen?.tools === 0) {
      return h("div", { class: "empty" }, h("h2", {}, "This catalog is empty"),
        h("p", {}, "Drop a file with tools here, in any format, or add them on the screen ", h("a", { href: `#/catalog?c=${encodeURIComponent(this.catalog)}` }, "Catalog"), "."));
    }
    const examples = EXAMPLES.map((text) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.tryExample(text) }, text)));
    return h("div", { class: "empty" }, icon("search"), h("h2", {}, "Describe what should be done"),
      h("p", { class: "muted" }, "Or type the name of a tool, in any spelling. For example:"), h("ul", { class: "examples" }, examples),
      h("p", {}, "To search from a program, ", h("a", { href: address("connect", { c: this.catalog }) }, "connect it"), "."));
  }

  tryExample(text) {
    this.input.value = text;
    this.query = text;
    this.noteAddress();
    this.input.focus();
    this.run();
  }

  /** Tells the server that a hit was the right one. */
  async right(answer, hit, button) {
    button.disabled = true;
    try {
      const body = { feedback_token: answer.feedback_token, tool: hit.id, outcome: "helpful", query: answer.asked };
      const { remembered } = await call(ofCatalog(this.catalog, "/feedback"), { method: "POST", json: body });
      const said = remembered ? "Recorded and remembered" : "Recorded; the memory of this catalog is off";
      button.replaceWith(h("span", { class: "done" }, icon("check"), said, remembered && this.isOwner && this.forgetButton(answer.asked)));
      announce(said);
    } catch (error) {
      button.disabled = false;
      button.after(h("span", { class: "notice error", role: "alert" }, foreign(error.message)));
    }
  }

  /** The reasons of a hit were opened or closed. */
  toggled(id, isOpen) {
    if (isOpen) this.opened.add(id);
    else this.opened.delete(id);
    remember({ opened: [...this.opened].slice(0, 50) });
  }

  /** Takes back what the memory knows of a request. */
  forgetButton(asked) {
    const button = h("button", { type: "button", class: "link", title: "Deletes all that the memory knows of this request" }, "Forget");
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const { forgotten } = await call(ofCatalog(this.catalog, `/memory?${new URLSearchParams({ query: asked })}`), { method: "DELETE" });
        const said = `Forgotten: ${counted(forgotten, "entry")}`;
        button.parentElement.replaceWith(h("span", { class: "done" }, said));
        announce(said);
      } catch (error) {
        button.after(h("span", { class: "notice error", role: "alert" }, foreign(error.message)));
      }
    });
    return button;
  }

  /** Lets the owner of the catalog change what this request finds. */
  async change({ asked }, hit) {
    const { changeHit } = await import("./own_words.js");
    const changed = await changeHit(hit, asked, this.catalog);
    if (!changed) return;
    const undo = h("button", { type: "button", class: "link", onclick: async () => {
      if (!(await changed.undo())) return;
      replace(this.changes, h("p", { class: "notice" }, "Undone."));
      this.run();
    } }, "Undo");
    replace(this.changes, h("p", { class: "notice" }, foreign(changed.said), " ", undo));
    undo.focus();
    this.run();
  }

  keyInBox(event) {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      this.root.querySelector(".hit")?.focus();
    }
  }

  /** Arrows go through the hits, Enter opens the reasons of one. */
  keyInHits(event) {
    const hit = event.target.closest?.(".hit");
    if (!hit || event.target !== hit) return;
    if (event.key === "ArrowDown") hit.nextElementSibling?.focus();
    else if (event.key === "ArrowUp") (hit.previousElementSibling ?? this.input).focus();
    else if (event.key === "Enter") hit.querySelector("summary").click();
    else return;
    event.preventDefault();
  }
}
