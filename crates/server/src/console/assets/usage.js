/** The use of tools: which ones are found and called, which nobody uses, and what no tool served. */

import { call, isAbort } from "./api.js";
import { h, replace, skeleton } from "./dom.js";
import { card, moment, notShown, table } from "./panels.js";
import { note } from "./place.js";
import { shadowCard } from "./shadow.js";
import { count, counted, foreign } from "./text.js";

const PAGE = 50;
const DAYS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const ORDERS = [["calls", "Most calls first"], ["searches", "Most searches first"], ["errors", "Most errors first"], ["tokens", "Most tokens first"]];
const HEADS = ["Tool", "Searches", "First", "Loaded", "Calls", "Errors", "Median", "95 of 100", "Tokens", "Last use"];

export function usage(root, params, catalogs) {
  const view = new UsageView(root, params, catalogs);
  view.fill();
  return view;
}

class UsageView {
  constructor(root, params, catalogs) {
    const names = catalogs.map(({ name }) => name);
    const given = params.get("catalog");
    Object.assign(this, { root, names, aborter: new AbortController() });
    this.filter = { catalog: names.includes(given) ? given : names[0] ?? "default", days: chosen(DAYS, params.get("days"), "30"), sort: chosen(ORDERS, params.get("sort"), "calls") };
    this.body = h("div", { class: "operations-body" });
    const options = names.map((name) => [name, name]);
    replace(root, h("div", { class: "filter" }, this.select("catalog", "Catalog", options), this.select("days", "Time", DAYS), this.select("sort", "Order", ORDERS)), this.body);
  }

  select(name, label, choices) {
    const options = choices.map(([value, title]) => h("option", { value, selected: value === this.filter[name] }, foreign(title)));
    return h("select", { "aria-label": label, onchange: (event) => this.change(name, event.target.value) }, options);
  }

  change(name, value) {
    this.filter[name] = value;
    note("operations", { view: "usage", ...this.filter });
    this.fill();
  }

  stop() {
    this.aborter.abort();
  }

  /** Is called when the server is back. */
  again() {
    this.fill();
  }

  async fill() {
    this.aborter.abort();
    this.aborter = new AbortController();
    replace(this.body, skeleton(5, "short"));
    try {
      const [used, unused, missed] = await Promise.all([this.read("", { limit: PAGE, sort: this.filter.sort }), this.read("/unused"), this.read("/missed")]);
      const shadow = used.has_shadow && shadowCard(await this.read("/shadow", {}));
      replace(this.body, said(used.record), this.used(used), shadow, unusedCard(unused), missedCard(missed));
    } catch (error) {
      if (!isAbort(error)) replace(this.body, notShown(error, () => this.fill()));
    }
  }

  read(path, more = { limit: PAGE }) {
    const query = new URLSearchParams({ since_days: this.filter.days, ...more });
    return call(`v1/catalogs/${encodeURIComponent(this.filter.catalog)}/usage${path}?${query}`, { signal: this.aborter.signal });
  }

  used(page) {
    const list = h("div", {});
    const rows = [];
    const more = h("button", { type: "button", hidden: true }, "More tools");
    const add = ({ tools, totals, next_cursor: cursor }) => {
      rows.push(...tools.map(row));
      replace(list, rows.length === 0 ? h("p", { class: "empty muted" }, "No tool was found or called in this time.") : table("Tools by their use", HEADS, [...rows, row({ ...totals, tool: null })]));
      more.hidden = cursor === undefined;
      more.onclick = async () => {
        more.disabled = true;
        try {
          add(await this.read("", { limit: PAGE, sort: this.filter.sort, cursor }));
        } catch (error) {
          if (!isAbort(error)) list.append(notShown(error, () => this.fill()));
        }
        more.disabled = false;
      };
    };
    add(page);
    return card(counted(page.total, "used tool"), list, more);
  }
}

const chosen = (choices, given, usual) => (choices.some(([value]) => value === given) ? given : usual);
const ms = (value) => (value === null ? "–" : `${count(Math.round(value))} ms`);

function row(tool) {
  const name = tool.tool === null ? h("b", {}, "All of them") : h("span", { class: "name" }, foreign(tool.tool));
  const errors = tool.calls - tool.successes;
  const codes = Object.entries(tool.errors).map(([code, times]) => `${code}: ${count(times)}`).join(", ");
  return [name, count(tool.searches), count(tool.first), count(tool.injections), count(tool.calls), h("span", { title: codes || null }, count(errors)), ms(tool.p50_ms), ms(tool.p95_ms), count(tool.definition_tokens + tool.result_tokens), tool.last_used_ms === null ? "–" : moment(tool.last_used_ms)];
}

function said({ enabled, recorded_since: since, recorded_days: days, nodes, only_this_node: reason }) {
  if (reason !== undefined) return h("p", { class: "notice warn" }, "Only what this node recorded is counted, because the store cannot be asked: ", foreign(reason));
  if (!enabled) return h("p", { class: "notice warn" }, "This server does not record the use of tools: the setting usage.enabled is false, or its database cannot be used.");
  return h("p", { class: "muted" }, since === null ? "Nothing was recorded in this time." : `Recorded on ${counted(days, "day")} of this time${nodes === undefined ? "" : ` by ${counted(nodes, "node")}`}, since ${since}.`);
}

function unusedCard({ tools, total, all_tools: all, definition_tokens: tokens, servers }) {
  if (total === 0) return card("No unused tool", h("p", { class: "muted" }, "Every tool was found or called."));
  const whole = servers.filter(({ tools: has, unused }) => has === unused);
  return card(`${count(total)} of ${counted(all, "tool")} unused`,
    h("p", {}, `Their definitions have ${count(tokens)} tokens.`),
    whole.length > 0 && h("p", {}, "Nothing was used of ", whole.slice(0, 10).map(({ server }, index) => [index > 0 && ", ", h("b", {}, foreign(server || "tools without a server"))]), whole.length > 10 && ` and ${count(whole.length - 10)} more servers`, "."),
    table("Unused tools", ["Tool", "Tokens"], tools.map((tool) => [h("span", { class: "name" }, foreign(tool.tool)), count(tool.definition_tokens)])),
    total > tools.length && h("p", { class: "muted" }, `The first ${count(tools.length)} by their ids.`));
}

function missedCard({ groups, total, requests, stores_queries: stores, advice }) {
  const heads = ["Request", "Times", "No match", "Possible", "Not called", "Nearest tool"];
  const rows = groups.map((group) => [h("span", { title: group.examples.join("\n") || null }, foreign(group.request)), count(group.times), count(group.none), count(group.possible), count(group.not_called), foreign(group.nearest ?? "–")]);
  return card("Requests that no tool served",
    !stores && h("p", { class: "muted" }, `Off: ${advice}.`),
    stores && total === 0 && h("p", { class: "muted" }, "None in this time."),
    total > 0 && h("p", {}, `${counted(requests, "request")} in ${counted(total, "group")}.`),
    total > 0 && table("Requests that no tool served", heads, rows));
}
