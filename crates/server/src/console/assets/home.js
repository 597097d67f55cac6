/** Screen Home: how to begin; later what needs a person, and what the server did. */

import { call, isAbort, ofCatalog } from "./api.js";
import { chart } from "./chart.js";
import { h, icon, replace, skeleton } from "./dom.js";
import { DECISIONS } from "./gate.js";
import { chooseFiles, loadFiles, takeDrops } from "./load.js";
import { address, go } from "./place.js";
import { time } from "./servers.js";
import { count, counted, foreign, milliseconds, oneLine } from "./text.js";
import { timeLeft } from "./waiting.js";

const LOOK_MS = 10_000;
/** Catalogs whose servers are looked at. */
const MOST_CATALOGS = 20;
const MOST_NEEDS = 12;
const LATEST_CALLS = 8;
const HOURS = 48;
const DAYS = 30;
/** The states of a server that a person has to do something about. */
const AWAY = { needs_login: "needs a login", reconnecting: "is not connected" };

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[], name: string, allowed: import("./permissions.js").Allowed}} catalogs
 */
export function home(root, params, catalogs) {
  const view = new Home(root, catalogs);
  view.start();
  return view;
}

class Home {
  constructor(root, { list, name, allowed }) {
    Object.assign(this, { root, list, name, allowed, aborter: new AbortController() });
    this.isEmpty = list.every(({ tools }) => tools === 0);
    this.onVisible = () => { if (document.visibilityState === "visible") this.look(); };
  }

  start() {
    document.addEventListener("visibilitychange", this.onVisible);
    if (this.isEmpty) this.drawFirstSteps();
    else this.draw();
  }

  stop() {
    this.aborter.abort();
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  /** Is called when the server is back. */
  again() {
    this.look();
  }

  /** Before there is a tool. */
  drawFirstSteps() {
    const loads = h("div", { class: "loads" });
    const add = async (files) => {
      await loadFiles(files, this.name, loads, this.aborter.signal);
      this.isFilled();
    };
    const mayAdd = this.allowed.may("admin");
    const adding = mayAdd
      ? [h("p", {}, "Drop files here: OpenAPI documents, lists of MCP, OpenAI or Anthropic tools."), h("div", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: () => chooseFiles(add) }, icon("plus"), "Choose files")),
        h("p", { class: "muted" }, "For tools of MCP servers, start this server with ", h("code", {}, "--mcp servers.json"), ". ", h("code", {}, "toolscout mcp import"), " writes such a file from what your other programs have.")]
      : h("p", {}, "This key may search and not add. Ask whoever runs the server.");
    const place = h("div", { class: "home" }, h("h1", {}, "Three steps"),
      h("ol", { class: "steps" },
        step("Add tools", adding, loads),
        step("Connect a program", h("p", {}, "Claude, Cursor, VS Code, an SDK or curl: ", h("a", { href: address("connect", { c: this.name }) }, "copy the lines"), " that connect it.")),
        step("Try it", h("p", {}, "Say what should be done, and see which tools are found and why: ", h("a", { href: address("search", { c: this.name }) }, "search"), "."))));
    if (mayAdd) takeDrops(place, add);
    replace(this.root, place);
  }

  /** Shows what comes after the first steps, once there is a tool. */
  async isFilled() {
    const { catalogs } = await call("v1/catalogs", { signal: this.aborter.signal });
    if (catalogs.every(({ tools }) => tools === 0)) return;
    const first = this.root.querySelector(".steps li");
    first.classList.add("is-done");
    first.querySelector(".actions")?.after(h("p", { role: "status" }, h("b", {}, `${counted(catalogs.reduce((all, { tools }) => all + tools, 0), "tool")} added.`), " Go on with the next step."));
  }

  draw() {
    this.boxes = { needs: h("div", { role: "status" }, skeleton(2, "short")), today: h("dl", { class: "tiles" }), charts: h("div", { class: "charts" }), calls: h("div", {}), missed: h("div", {}) };
    const input = h("input", { type: "search", placeholder: "What should the tool do?", "aria-label": "Request", autocomplete: "off", spellcheck: "false", enterkeyhint: "search" });
    const form = h("form", { class: "box", role: "search", onsubmit: (event) => {
      event.preventDefault();
      go("search", { c: this.name, q: input.value.trim() });
    } }, icon("search"), input);
    const { needs, today, charts, calls, missed } = this.boxes;
    replace(this.root, h("div", { class: "home" }, h("h1", { class: "sr" }, "Home"), form,
      section("Needs you", needs),
      this.allowed.operates
        ? [section("Today", today), charts, h("div", { class: "home-columns" }, section("Latest calls", calls), missed)]
        : section("What this key may see", h("p", { class: "muted" }, "Figures, calls and requests of all programs are shown to admin keys for all catalogs.")),
      section("Catalogs", h("ul", { class: "plain" }, this.list.slice(0, MOST_CATALOGS).map(catalogItem), this.list.length > MOST_CATALOGS && h("li", { class: "muted" }, `and ${count(this.list.length - MOST_CATALOGS)} more`)))));
    this.look();
  }

  async look() {
    if (this.isEmpty) return;
    clearTimeout(this.timer);
    const parts = this.allowed.operates ? [this.showNeeds(), this.showToday(), this.showCharts(), this.showCalls(), this.showMissed()] : [this.showNeeds()];
    const ended = await Promise.allSettled(parts);
    if (this.aborter.signal.aborted) return;
    const failed = ended.find(({ reason }) => reason && reason.status !== 0 && !isAbort(reason));
    if (failed) replace(this.boxes.needs, h("p", { class: "notice error", role: "alert" }, foreign(failed.reason.message)));
    if (document.visibilityState === "visible") this.timer = setTimeout(() => this.look(), LOOK_MS);
  }

  read(path) {
    return call(path, { signal: this.aborter.signal });
  }

  async showNeeds() {
    const looked = this.list.filter(({ damaged }) => !damaged).slice(0, MOST_CATALOGS);
    const [{ approvals }, ...ofCatalogs] = await Promise.all([
      this.read("v1/approvals").catch((error) => (error.code === "wrong_scope" ? { approvals: [] } : Promise.reject(error))),
      ...looked.map(({ name }) => this.read(ofCatalog(name, "/servers"))),
    ]);
    const needs = [...approvals.map(callNeed), ...this.list.filter(({ damaged }) => damaged).map(damagedNeed)];
    ofCatalogs.forEach(({ servers }, index) => needs.push(...servers.flatMap((server) => serverNeeds(server, looked[index].name))));
    const shown = needs.slice(0, MOST_NEEDS);
    const list = shown.length > 0
      ? h("ul", { class: "needs" }, shown.map((need) => h("li", {}, need)), needs.length > shown.length && h("li", { class: "muted" }, `and ${count(needs.length - shown.length)} more`))
      : h("p", { class: "muted calm" }, icon("check"), " Nothing waits for you.");
    // What one is about to press stays where it is.
    if (this.boxes.needs.contains(document.activeElement) && this.boxes.needs.textContent === list.textContent) return;
    replace(this.boxes.needs, list);
  }

  async showToday() {
    const [use, history] = await Promise.all([this.read("v1/usage?since_days=1"), this.read("v1/stats/history?step=day")]);
    this.days = history;
    const { searches, none, calls, errors } = use.totals;
    const day = history.periods.at(-1);
    const tiles = [
      [count(searches), "searches"], [count(none), "found nothing that fits"], [count(calls), "calls"], [count(errors), "failed calls"],
      [count(day?.saved_tokens ?? 0), "tokens saved"], [day?.p95_ms ? milliseconds(day.p95_ms) : "–", "search time, 95%"],
    ];
    replace(this.boxes.today, tiles.map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, value))));
    this.drawCharts();
  }

  async showCharts() {
    this.hours = await this.read("v1/stats/history?step=hour");
    this.drawCharts();
  }

  drawCharts() {
    if (!this.hours || !this.days || this.boxes.charts.matches(":hover")) return;
    replace(this.boxes.charts,
      chart(`Searches by hour, ${HOURS} hours`, this.hours, HOURS, ({ searches }) => searches),
      chart(`Tokens saved by day, ${DAYS} days`, this.days, DAYS, ({ saved_tokens: saved }) => saved));
  }

  async showCalls() {
    const { entries } = await this.read(`v1/audit?${new URLSearchParams({ limit: 4 * LATEST_CALLS })}`);
    const ends = new Map(entries.filter(({ event }) => event === "ended").map((entry) => [entry.begun, entry]));
    const calls = entries.filter(({ event }) => event === "begun" || event === "refused").slice(0, LATEST_CALLS);
    replace(this.boxes.calls, calls.length > 0
      ? [h("ul", { class: "calls" }, calls.map((entry) => callItem(entry, ends.get(entry.seq)))), h("p", {}, h("a", { href: address("operations", { view: "audit" }) }, "All calls"))]
      : h("p", { class: "muted" }, "No tool was called yet."));
  }

  async showMissed() {
    const { groups, stores_queries: stores } = await this.read(ofCatalog(this.name, "/usage/missed?limit=5"));
    const items = groups.slice(0, 5).map(({ request, times }) => h("li", {}, h("a", { href: address("search", { c: this.name, q: request }) }, foreign(oneLine(request, 90))), h("span", { class: "number muted" }, ` ×${count(times)}`)));
    const content = items.length > 0 ? h("ul", { class: "plain" }, items) : h("p", { class: "muted" }, stores ? "None in 30 days." : "Requests are not stored. The setting usage.queries keeps those that no tool served.");
    replace(this.boxes.missed, section("Requests that no tool served", content));
  }
}

const section = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);

const step = (title, ...content) => h("li", { class: "card" }, h("h2", {}, title), content);

function callNeed({ tool, expires_in_ms: left, client }) {
  return [h("a", { href: address("operations", { view: "approvals" }) }, "Decide on a call"), " of ", name(tool), client && [" by ", foreign(oneLine(client, 60))], ", ", h("span", { class: "number" }, timeLeft(left)), " left"];
}

function damagedNeed(catalog) {
  return ["The catalog ", h("a", { href: address("catalog", { c: catalog.name }) }, foreign(catalog.name)), " cannot be opened: ", foreign(oneLine(catalog.damaged, 160))];
}

function serverNeeds({ name: server, connection, changes, blocked }, catalog) {
  const needs = [];
  const away = AWAY[connection?.state];
  const link = (caption, values = {}) => h("a", { href: address("catalog", { c: catalog, server, ...values }) }, caption);
  if (away) needs.push([link(foreign(oneLine(server, 60))), ` ${away} since `, time(connection.since_ms), connection.reason && [": ", foreign(oneLine(connection.reason, 160))]]);
  if (changes > 0) needs.push([link("Review", { view: "changes" }), ` ${counted(changes, "changed tool")} of `, name(server), blocked > 0 && `, ${count(blocked)} blocked`]);
  return needs;
}

const name = (text) => h("span", { class: "mono" }, foreign(oneLine(text, 80)));

function callItem({ tool, time_ms: at, event, decision }, end) {
  const [state, said] = event === "refused" ? ["error", "refused"] : !end ? ["", DECISIONS[decision] ?? decision ?? ""] : end.status === "ok" ? ["ok", "ok"] : ["error", "failed"];
  return h("li", {}, h("span", { class: "number muted" }, at === undefined ? "–" : time(at)), h("a", { href: address("operations", { view: "audit", name: tool }) }, foreign(oneLine(tool ?? "", 80))), h("span", { class: "call-state", "data-state": state }, said));
}

function catalogItem({ name: catalog, tools, pending_embeddings: pending, settings }) {
  return h("li", {}, h("a", { href: address("catalog", { c: catalog }) }, foreign(catalog)), ` ${counted(tools, "tool")}`, pending > 0 && `, ${count(pending)} still to be embedded`, settings?.description && h("span", { class: "muted" }, " ", foreign(oneLine(settings.description, 100))));
}
