/** How one hit got its rank, in numbers. */

import { bar, h } from "./dom.js";
import { MOST_ROWS } from "./hit.js";
import { foreign } from "./text.js";

/** The fields of a tool, as the index names them. */
const FIELDS = { parameter_names: "parameters", parameter_descriptions: "parameter descriptions" };

/** The tables of a hit: its parts, its matched words, and what the ranker saw. */
export const reasonsOf = (explain) => [legTable(explain), matchedFields(explain), reasons(explain)];

function legTable(explain) {
  const legs = [["words", explain.lexical], ...(explain.dense ?? [])].slice(0, MOST_ROWS);
  const rows = legs.map(([name, leg]) => h("tr", {},
    h("th", { scope: "row" }, foreign(name)),
    leg ? [h("td", {}, leg.rank), h("td", {}, leg.raw.toFixed(3)), h("td", {}, leg.normalised.toFixed(3))] : h("td", { colspan: 3 }, "not found by it")));
  const fused = `Fused ${explain.fused?.toFixed(3) ?? "–"}, of which meaning has a share of ${explain.dense_weight?.toFixed(2) ?? "–"}.`;
  return h("div", {},
    h("table", {}, h("thead", {}, h("tr", {}, ["part", "rank", "raw", "scaled"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)),
    h("p", { class: "muted" }, fused));
}

function matchedFields(explain) {
  const fields = explain.matched ?? [];
  if (fields.length === 0) return h("p", { class: "muted" }, "No word of the request is in this tool.");
  const rows = fields.map(({ field, terms }) => h("tr", {}, h("th", { scope: "row" }, FIELDS[field] ?? field), h("td", { class: "words" }, foreign(terms.join(", ")))));
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "field"), h("th", { scope: "col" }, "words, cut to their stems"))), h("tbody", {}, rows));
}

function reasons(explain) {
  const { ranker } = explain;
  if (!ranker) return h("p", { class: "muted" }, "The ranker took no part.");
  const most = Math.max(...ranker.reasons.map(({ moved }) => Math.abs(moved)), 0.001);
  const rows = ranker.reasons.slice(0, MOST_ROWS).map(({ feature, value, moved }) => h("tr", {},
    h("th", { scope: "row" }, feature.replaceAll("_", " ")),
    h("td", {}, value.toFixed(2)),
    h("td", {}, `${moved < 0 ? "−" : "+"}${Math.abs(moved).toFixed(2)}`),
    h("td", { class: "wide" }, bar(Math.abs(moved) / most, moved < 0 ? "less" : ""))));
  const names = ["what the ranker saw", "value", "moved", ""];
  return h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => (name ? h("th", { scope: "col" }, name) : h("td", {}))))), h("tbody", {}, rows));
}
