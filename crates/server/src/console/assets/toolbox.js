/** What the model can call: which search brought it, its tokens, and what was taken out again. */

import { h, replace } from "./dom.js";
import { address } from "./place.js";
import { count, counted, foreign, oneLine } from "./text.js";

const REASONS = { budget: "the budget was needed for others", idle: "not used for some turns" };
/** Evictions that are listed, the last ones first. */
const MOST_EVICTED = 50;
const STAGES = 5;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export class Toolbox {
  /** @param {string} catalog where the tools are looked up */
  constructor(catalog) {
    this.catalog = catalog;
    this.body = h("div", { class: "toolbox-body" });
    this.clear();
  }

  /** @param {boolean} [isContinued] whether there are earlier turns that are not shown */
  clear(isContinued = false) {
    /** @type {Array<{queries: string[], tools: Map<string, number>}>} tools with their tokens */
    this.injections = [];
    /** @type {?{used: number, limit: ?number}} */
    this.budget = null;
    this.evicted = [];
    this.searches = [];
    this.used = new Set();
    this.isContinued = isContinued;
    this.draw();
  }

  searched(event) {
    this.searches.push(event);
  }

  /** Tools come in right after the searches that found them. */
  injected({ tools, tokens_by_tool: tokens, budget }) {
    const brought = this.searches.filter(({ hits }) => hits.some((hit) => tools.includes(hit)));
    const queries = brought.flatMap(({ queries: words, select = [] }) => [...words, ...select]);
    this.searches = [];
    this.injections.push({ queries, tools: new Map(tokens.map(({ tool, tokens: number }) => [tool, number])) });
    this.budget = budget;
    this.draw();
  }

  takenOut({ tools, reason, budget }, turn, at) {
    this.budget = budget;
    for (const tool of tools) for (const injection of this.injections) injection.tools.delete(tool);
    this.evicted.push({ tools, reason, turn, at });
    this.draw();
  }

  called(name) {
    this.used.add(name);
    this.draw();
  }

  draw() {
    const held = this.injections.filter(({ tools }) => tools.size > 0);
    if (held.length === 0 && this.evicted.length === 0) {
      const earlier = this.isContinued && " What the turns before those shown here had injected is not listed.";
      replace(this.body, h("p", { class: "muted" }, "Nothing is injected yet. What a search finds is listed here. ", earlier, " A catalog with fewer than 30 tools is shown to the model whole, without a search."));
      return;
    }
    replace(this.body, this.total(held), held.map((injection, index) => this.group(injection, index)), this.evictions());
  }

  total(held) {
    const tools = held.reduce((sum, injection) => sum + injection.tools.size, 0);
    const listed = held.reduce((sum, injection) => sum + sumOf(injection), 0);
    const used = Math.max(this.budget?.used ?? 0, listed);
    const limit = this.budget?.limit;
    const parts = held.map((injection, index) => part(`stage-${index % STAGES}`, sumOf(injection)));
    const others = used - listed;
    return h("div", { class: "toolbox-total" },
      h("div", { class: "head" }, h("b", { class: "number" }, counted(tools, "tool")),
        h("span", { class: "number muted" }, limit ? `${count(used)} of ${counted(limit, "token")}` : counted(used, "token"))),
      h("div", { class: "stages", "aria-hidden": "true" }, parts, part("rest", others), limit && part("free", Math.max(limit - used, 0))),
      others > 0 && h("p", { class: "muted" }, `${counted(others, "token")} are of tools that are always visible, or that earlier turns injected.`));
  }

  group(injection, index) {
    const by = injection.queries.length > 0 ? injection.queries.map((query) => foreign(oneLine(query, 90))) : ["given"];
    return h("section", { class: "group" },
      h("h3", {}, h("i", { class: `stage-${index % STAGES}` }), by.flatMap((query, at) => (at === 0 ? [query] : [" · ", query])),
        h("span", { class: "number muted", title: "tokens" }, count(sumOf(injection)))),
      h("ul", {}, [...injection.tools].map(([tool, tokens]) => this.tool(tool, tokens))));
  }

  tool(id, tokens) {
    const isUsed = this.used.has(id) || this.used.has(id.replaceAll("/", "__"));
    return h("li", {}, h("a", { href: address("catalog", { c: this.catalog, tool: id }) }, foreign(oneLine(id, 80))), isUsed && h("span", { class: "badge accent" }, "called"),
      tokens !== undefined && h("span", { class: "number muted", title: "tokens" }, count(tokens)));
  }

  evictions() {
    if (this.evicted.length === 0) return null;
    const items = this.evicted.slice(-MOST_EVICTED).reverse().map(({ tools, reason, turn, at }) => [
      h("p", { class: "muted" }, `${at === null ? "" : `${clock.format(at)}, `}turn ${turn}: ${REASONS[reason] ?? reason}`),
      h("ul", {}, tools.map((tool) => this.tool(tool, undefined))),
    ]);
    const all = this.evicted.reduce((sum, { tools }) => sum + tools.length, 0);
    return h("section", { class: "group evicted" }, h("h3", {}, "Evicted", h("span", { class: "number muted" }, count(all))), items);
  }
}

const sumOf = ({ tools }) => [...tools.values()].reduce((sum, tokens) => sum + tokens, 0);

/** A part of the bar. */
function part(kind, tokens) {
  if (tokens === 0) return null;
  const box = h("span", { class: `stage ${kind}` });
  box.style.flexGrow = String(tokens);
  return box;
}
