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
    /** @type {Array<{queries: string[], tools: Set<string>, first: number, tokens: number}>} */
    this.injections = [];
    this.evicted = [];
    this.searches = [];
    this.used = new Set();
    this.isContinued = false;
    this.body = h("div", { class: "toolbox-body" });
    this.draw();
  }

  searched(event) {
    this.searches.push(event);
  }

  /** Tools come in right after the searches that found them. */
  injected({ tools, tokens }) {
    const brought = this.searches.filter(({ hits }) => hits.some((hit) => tools.includes(hit)));
    const queries = brought.flatMap(({ queries: words, select = [] }) => [...words, ...select]);
    this.searches = [];
    this.injections.push({ queries, tools: new Set(tools), first: tools.length, tokens });
    this.draw();
  }

  takenOut({ tools, reason }, turn) {
    for (const tool of tools) for (const injection of this.injections) injection.tools.delete(tool);
    this.evicted.push({ tools, reason, turn, at: clock.format(new Date()) });
    this.draw();
  }

  called(name) {
    this.used.add(name);
    this.draw();
  }

  draw() {
    const held = this.injections.filter(({ tools }) => tools.size > 0);
    if (held.length === 0 && this.evicted.length === 0) {
      const earlier = this.isContinued && " What earlier turns had injected is not stored.";
      replace(this.body, h("p", { class: "muted" }, "Nothing is injected yet. What a search finds is listed here. ", earlier, " A catalog with fewer than 30 tools is shown to the model whole, without a search."));
      return;
    }
    replace(this.body, this.total(held), held.map((injection, index) => this.group(injection, index)), this.evictions());
  }

  total(held) {
    const tools = held.reduce((sum, injection) => sum + injection.tools.size, 0);
    // Tokens are told for the tools of an injection together; of a rest only a share is known.
    const isExact = held.every((injection) => injection.tools.size === injection.first);
    const tokens = held.reduce((sum, injection) => sum + share(injection), 0);
    const bars = held.map((injection, index) => {
      const part = h("span", { class: `stage stage-${index % STAGES}` });
      part.style.flexGrow = String(Math.max(share(injection), 1));
      return part;
    });
    return h("div", { class: "toolbox-total" },
      h("div", { class: "head" }, h("b", { class: "number" }, counted(tools, "tool")), h("span", { class: "number muted" }, `${isExact ? "" : "about "}${counted(tokens, "token")}`)),
      h("div", { class: "stages", "aria-hidden": "true" }, bars));
  }

  group(injection, index) {
    const by = injection.queries.length > 0 ? injection.queries.map((query) => foreign(oneLine(query, 90))) : ["given"];
    return h("section", { class: "group" },
      h("h3", {}, h("i", { class: `stage-${index % STAGES}` }), by.flatMap((query, at) => (at === 0 ? [query] : [" · ", query])),
        h("span", { class: "number muted" }, injection.tools.size === injection.first ? count(injection.tokens) : `~${count(share(injection))}`)),
      h("ul", {}, [...injection.tools].map((tool) => this.tool(tool))));
  }

  tool(id) {
    const isUsed = this.used.has(id) || this.used.has(id.replaceAll("/", "__"));
    return h("li", {}, h("a", { href: address("catalog", { c: this.catalog, tool: id }) }, foreign(oneLine(id, 80))), isUsed && h("span", { class: "badge accent" }, "called"));
  }

  evictions() {
    if (this.evicted.length === 0) return null;
    const items = this.evicted.slice(-MOST_EVICTED).reverse().map(({ tools, reason, turn, at }) => [
      h("p", { class: "muted" }, `${at}, turn ${turn}: ${REASONS[reason] ?? reason}`),
      h("ul", {}, tools.map((tool) => this.tool(tool))),
    ]);
    const all = this.evicted.reduce((sum, { tools }) => sum + tools.length, 0);
    return h("section", { class: "group evicted" }, h("h3", {}, "Evicted", h("span", { class: "number muted" }, count(all))), items);
  }
}

const share = ({ tokens, tools, first }) => Math.round((tokens * tools.size) / Math.max(first, 1));
