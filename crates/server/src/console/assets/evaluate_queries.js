/** The queries of an evaluation: what was expected, what was found, and what differs. */

import { call, isAbort, ofCatalog } from "./api.js";
import { h, icon, replace, skeleton } from "./dom.js";
import { armName, points } from "./evaluate_figures.js";
import { address } from "./place.js";
import { settingsOf, writeSettings } from "./settings.js";
import { count, foreign, oneLine } from "./text.js";

const PAGE = 100;
const READ_PAGE = 1000;
/** Found tools that are shown at first, and relevant ones. */
const SHOWN = 3;
/** Hits that people and agents look at. */
const FIRST = 10;
const SORTS = [["loss", "Worst first"], ["change", "Largest drop first"], ["order", "As given"]];
/** Without judgements nothing is worse, and hits may still differ. */
const UNJUDGED_SORTS = [["change", "Most changed first"], ["order", "As given"]];

/**
 * Reads all queries of an evaluation, as lines that can be evaluated again.
 * @returns {Promise<string>}
 */
export async function readQueries(catalog, id, signal) {
  const lines = [];
  let cursor = "";
  do {
    const query = new URLSearchParams({ sort: "order", against: "none", limit: READ_PAGE, ...(cursor && { cursor }) });
    const page = await call(ofCatalog(catalog, `/evaluations/${encodeURIComponent(id)}/queries?${query}`), { signal });
    lines.push(...page.queries.map(lineOf));
    cursor = page.next_cursor ?? "";
  } while (cursor);
  return lines.join("\n");
}

function lineOf({ id, query, relevant }) {
  const named = id === query ? {} : { id };
  return JSON.stringify({ ...named, query, ...(relevant && { relevant }), ...(relevant?.length === 0 && { kind: "none" }) });
}

export class QueryTable {
  /** @param {{catalog: string, evaluation: object, against: string, state: {sort: string, arm: string, changed: boolean}, signal: AbortSignal, changed: () => void}} context */
  constructor(context) {
    Object.assign(this, context);
    this.settings = this.evaluation.arms.map(({ search }) => settingsOf(search ?? {}));
    this.visit = 0;
    this.counted = h("span", { class: "muted", role: "status" });
    this.rows = h("ol", { class: "query-rows" });
    this.more = h("div", { class: "query-more" });
    this.element = h("div", {}, this.controls(), this.rows, this.more);
  }

  get arm() {
    return Math.max(this.evaluation.arms.findIndex(({ name }) => name === this.state.arm), 0);
  }

  controls() {
    const choose = (name, value) => {
      this.state[name] = value;
      this.changed();
      this.load();
    };
    const choice = (name, label, values) => h("label", { class: "setting" }, h("span", {}, label),
      h("select", { onchange: (event) => choose(name, event.target.value) }, values.map(([value, caption]) => h("option", { value, selected: value === this.state[name] }, caption))));
    const changed = h("input", { type: "checkbox", checked: this.state.changed, onchange: (event) => choose("changed", event.target.checked) });
    const label = ({ name }) => armName(this.evaluation, name);
    const [first, second] = this.evaluation.arms;
    const against = this.evaluation.arms.map((arm) => [arm.name, `${label(arm)}, against the last time`]);
    const arms = second && choice("arm", "Settings", [...against, ["b-a", `${label(second)}, against ${label(first)}`]]);
    return h("div", { class: "fields query-controls" }, choice("sort", "Order", this.evaluation.queries.judged > 0 ? SORTS : UNJUDGED_SORTS), arms, h("label", { class: "check" }, changed, h("span", {}, "Changed only")), this.counted);
  }

  async load(cursor = "") {
    this.visit += 1;
    const visit = this.visit;
    const isBetween = this.state.arm === "b-a";
    const query = new URLSearchParams({
      limit: PAGE, sort: this.state.sort, arm: this.evaluation.arms[isBetween ? 1 : this.arm].name,
      ...(this.state.changed && { changed: "true" }), ...(cursor && { cursor }),
      ...(isBetween ? { against: "a" } : this.against && { against: this.against }),
    });
    if (!cursor) replace(this.rows, h("li", {}, skeleton(4, "short")));
    replace(this.more);
    try {
      const page = await call(ofCatalog(this.catalog, `/evaluations/${encodeURIComponent(this.evaluation.id)}/queries?${query}`), { signal: this.signal });
      if (visit === this.visit) this.show(page, cursor !== "");
    } catch (error) {
      if (!isAbort(error) && visit === this.visit) replace(this.more, h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
    }
  }

  show({ queries, total, next_cursor: next, against }, isMore) {
    const isCompared = against !== null || this.state.arm === "b-a";
    const arm = this.state.arm === "b-a" ? 1 : this.arm;
    const items = queries.map((row) => this.row(row, arm));
    if (isMore) this.rows.append(...items);
    else replace(this.rows, items.length > 0 ? items : h("li", { class: "muted query-none" }, isCompared ? "Nothing has changed." : "There is nothing to compare with."));
    this.counted.textContent = `${count(total)} of ${count(this.evaluation.queries.total)}`;
    replace(this.more, next && h("button", { type: "button", onclick: () => this.load(next) }, "Show more"));
  }

  row(row, arm) {
    const answer = row.arms[arm];
    const { before } = answer;
    return h("li", { class: "query-row" },
      h("div", { class: "query-score" }, this.score(answer), before && this.move(answer)),
      h("div", { class: "query-body" },
        h("a", { class: "query-text", href: this.link(row.query), title: "Search for it" }, icon("search"), foreign(oneLine(row.query, 300))),
        row.id !== row.query && h("small", { class: "muted query-id" }, foreign(oneLine(row.id, 60))),
        expected(row, answer),
        found(row, answer, "Found"),
        before && before.hits.join("\n") !== answer.hits.join("\n") && found(row, before, "Before")));
  }

  score({ score, no_match: none }) {
    if (score !== null) return h("b", { class: score === 0 ? "number warn-text" : "number", title: this.evaluation.main_metric }, points(score));
    return h("span", { class: "muted" }, none ? "no match" : "–");
  }

  move({ score, before }) {
    if (score !== null && before.score !== null && score !== before.score) {
      const by = score - before.score;
      return h("span", { class: `move ${by > 0 ? "up" : "down"}` }, h("span", { "aria-hidden": "true" }, by > 0 ? "▲" : "▼"), h("span", { class: "sr" }, by > 0 ? "up by " : "down by "), points(Math.abs(by)));
    }
    const same = points(before.overlap);
    return before.overlap < 1 && h("span", { class: "move", title: "share of the first ten hits that both have" }, `${same}%`);
  }

  /** The search that gave this answer. */
  link(query) {
    const [first, second] = this.settings;
    const isHere = this.evaluation.source === "server";
    return address("search", { c: this.catalog, q: query, ...writeSettings(first), ...(second && isHere && { compare: "1", ...writeSettings(second, "b.") }) });
  }
}

/** The relevant tools with their ranks. */
function expected({ relevant }, { ranks, no_match: none }) {
  if (relevant === null) return null;
  if (relevant.length === 0) return line("Expected", [h("li", { class: none ? "tool-rank right-one" : "tool-rank" }, "no tool")]);
  const items = relevant.map((id, index) => h("li", { class: `tool-rank ${kindOf(ranks[index])}` }, foreign(oneLine(id, 120)), h("span", { class: "number" }, ranks[index] ? ` #${ranks[index]}` : " not found")));
  return line("Expected", items);
}

const kindOf = (rank) => (rank === null ? "missing" : rank > FIRST ? "late" : "right-one");

function found({ relevant }, { hits }, label) {
  const right = new Set(relevant ?? []);
  const items = hits.map((id, index) => h("li", { class: right.has(id) ? "tool-rank right-one" : "tool-rank" }, foreign(oneLine(id, 120)), right.has(id) && h("span", { class: "sr" }, " (expected)"), h("span", { class: "number" }, ` #${index + 1}`)));
  return line(label, items.length > 0 ? items : [h("li", { class: "muted" }, "nothing")]);
}

/** A line of tools, the rest of which is shown on request. */
function line(label, items) {
  const rest = items.slice(SHOWN);
  const list = h("ul", {}, items.slice(0, SHOWN));
  const more = rest.length > 0 && h("li", {}, h("button", { type: "button", class: "link", onclick: (event) => { event.target.parentElement.remove(); list.append(...rest); } }, `${rest.length} more`));
  if (more) list.append(more);
  return h("div", { class: "query-line" }, h("span", { class: "muted" }, label), list);
}
