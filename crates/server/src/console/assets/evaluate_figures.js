/** The figures of an evaluation, with their intervals, and how they differ from others. */

import { h } from "./dom.js";
import { count, counted, foreign, milliseconds, oneLine } from "./text.js";

const NAMES = { ndcg: "nDCG", recall: "Recall", precision: "Precision", mrr: "MRR", success: "Success", complete: "Complete" };
const MEANINGS = {
  ndcg: "how near to the top the relevant tools are",
  recall: "the share of the relevant tools that is found",
  precision: "the share of the hits that is relevant",
  mrr: "1 divided by the rank of the first relevant tool",
  success: "how often any relevant tool is found",
  complete: "how often all relevant tools are found",
};
const STAGES = { embed: "Embed", lexical: "Words", dense: "Meaning", fuse: "Fuse", rank: "Rank", total: "Total" };

/** A share as points of 100, which figures of retrieval are read as. */
export const points = (share) => (100 * share).toFixed(1);

const signed = (share) => `${share < 0 ? "−" : share > 0 ? "+" : "±"}${points(Math.abs(share))}`;

/** Below this, one query moves a mean by more than two points. */
const FEW = 50;
/** From here on a difference may as well be chance. */
const CHANCE = 0.05;

/** Up or down where the whole interval is on one side of zero, and the test agrees. */
function direction({ ci95: [low, high], p }) {
  if (p !== null && p >= CHANCE) return "";
  return low > 0 ? "up" : high < 0 ? "down" : "";
}

/** What an arm is called: those of a report that was sent have names of their own. */
export const armName = ({ source }, name) => (source === "sent" ? oneLine(name, 60) : name.toUpperCase());

/** What differs, in words. */
export function changeSummary(evaluation, against, arms) {
  const said = [];
  if (against) {
    const name = against.evaluation.name ? foreign(oneLine(against.evaluation.name, 60)) : "the last time";
    for (const change of against.arms) said.push(sentence(change, evaluation, [evaluation.arms.length > 1 ? [foreign(armName(evaluation, change.arm)), " against "] : "Against ", name]));
  } else said.push(h("p", { class: "muted" }, "There is no earlier evaluation to compare with."));
  if (arms) {
    const [first, second] = evaluation.arms;
    said.push(sentence(arms, evaluation, [foreign(armName(evaluation, second.name)), " against ", foreign(armName(evaluation, first.name))]));
  }
  return h("div", { class: "changes-said" }, said);
}

function sentence(change, evaluation, what) {
  const same = change.judged - change.better - change.worse;
  const left = evaluation.queries.total - change.queries;
  const judged = change.judged > 0 && [
    h("span", { class: change.better > 0 && "move up" }, `${count(change.better)} better`), ", ",
    h("span", { class: change.worse > 0 && "move down" }, `${count(change.worse)} worse`), `, ${count(same)} the same; `,
  ];
  return h("p", {}, h("b", {}, what), ": ", judged,
    `${counted(change.hits_changed, "query")} with other first ten hits, ${count(change.first_changed)} with another first hit; `,
    `${points(change.overlap)}% of the first ten are in both.`,
    left > 0 && h("span", { class: "muted" }, ` ${count(left)} were not asked there.`));
}

/** Every metric with its mean, interval and change. */
export function figuresTable(evaluation, against, arms) {
  const [first] = evaluation.arms;
  if (first.figures.length === 0) {
    return h("p", { class: "muted" }, "None of the queries names relevant tools, so there are no figures; what changed in the hits is below.");
  }
  const { depths } = evaluation;
  const deepest = depths[depths.length - 1];
  const isMain = ({ metric }) => metric.endsWith(`@${deepest}`) || metric === "precision@1";
  const row = (figure) => figureRow(figure, { evaluation, against, arms });
  const isOne = evaluation.arms.length === 1;
  const column = (...caption) => h("th", { scope: "col", class: "right" }, caption);
  const label = (name) => foreign(armName(evaluation, name));
  const head = () => h("thead", {}, h("tr", {}, h("th", { scope: "col" }, evaluation.queries.judged < FEW ? "Metric (small set)" : "Metric"),
    isOne ? column("Mean") : evaluation.arms.map(({ name }) => column(label(name))),
    arms && column(label(evaluation.arms[1].name), " − ", label(evaluation.arms[0].name)),
    h("th", { scope: "col", class: "range-head" }, "95% interval"),
    against?.arms.map(({ arm }) => (isOne ? column("Change") : column(label(arm), " since last")))));
  const table = (figures, label) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "figures" }, head(), h("tbody", {}, figures.map(row))));
  return [
    table(first.figures.some(isMain) ? first.figures.filter(isMain) : first.figures, "Figures"),
    h("details", {}, h("summary", {}, "All metrics"), table(first.figures, "All metrics")),
    h("p", { class: "muted small" }, "In points of 100. Intervals are bootstrap intervals of the mean over ", counted(evaluation.queries.judged, "judged query"), "; differences are paired by query, and p is of a randomisation test.",
      evaluation.queries.judged < FEW && " This set is small: one query moves a mean by more than two points."),
    abstentions(evaluation),
  ];
}

function figureRow({ metric }, { evaluation, against, arms }) {
  const [measure, depth] = metric.split("@");
  const of = (list) => list?.find((other) => other.metric === metric);
  const figures = evaluation.arms.map(({ figures: all }) => of(all));
  const cell = (content) => h("td", { class: "right" }, content);
  return h("tr", { class: metric === evaluation.main_metric && "main" },
    h("th", { scope: "row", title: MEANINGS[measure] }, `${NAMES[measure] ?? measure}${depth ? `@${depth}` : ""}`),
    figures.map((figure) => cell(figure ? points(figure.mean) : "–")),
    arms && cell(difference(of(arms.differences))),
    h("td", { class: "range-cell" }, range(figures.filter(Boolean))),
    against?.arms.map(({ differences }) => cell(difference(of(differences)))));
}

function difference(change) {
  if (!change) return h("span", { class: "muted" }, "–");
  const [low, high] = change.ci95;
  if (low === 0 && high === 0) return h("span", { class: "muted" }, "the same");
  return [h("b", { class: `move ${direction(change)}` }, signed(change.difference)),
    h("small", { class: "muted" }, ` ${signed(low)} to ${signed(high)}`, change.p !== null && `, p ${change.p < 0.001 ? "< .001" : `= ${change.p.toFixed(3).replace(/^0/u, "")}`}`)];
}

/** Intervals from 0 to 100 as lines with a dot for the mean, and in numbers. */
function range(figures) {
  const lines = figures.map(({ mean, ci95: [low, high] }, index) => {
    const line = h("span", { class: `range range-${index % 2}` });
    line.style.left = `${100 * low}%`;
    line.style.width = `${Math.max(100 * (high - low), 0.5)}%`;
    const dot = h("span", { class: `range-dot range-${index % 2}` });
    dot.style.left = `${100 * mean}%`;
    return h("span", { class: "range-line" }, line, dot);
  });
  const said = figures.map(({ ci95: [low, high] }) => `${points(low)} to ${points(high)}`).join("; ");
  return [h("span", { class: "ranges", "aria-hidden": "true" }, lines), h("small", { class: "muted" }, said)];
}

function abstentions(evaluation) {
  const { arms, queries } = evaluation;
  const said = arms.map(({ name, abstained, no_tool_abstained: none }) => {
    const side = arms.length > 1 ? `${armName(evaluation, name)}: ` : "";
    const parts = [];
    if (queries.no_tool > 0) parts.push(`${count(none)} of ${count(queries.no_tool)} that no tool fits answered with “no match”`);
    if (abstained > 0) parts.push(`${count(abstained)} of ${count(queries.judged)} judged ones wrongly so`);
    return parts.length > 0 && `${side}${parts.join("; ")}.`;
  }).filter(Boolean);
  return said.length > 0 && h("p", {}, foreign(said.join(" ")));
}

/** Percentiles by stage, where they were measured. */
export function latencyTable(evaluation) {
  const arms = evaluation.arms.filter(({ latency }) => latency.length > 0);
  if (arms.length === 0) return null;
  const side = (name) => (arms.length > 1 ? `${armName(evaluation, name)} ` : "");
  const columns = arms.flatMap(({ name }) => ["p50", "p95", "p99"].map((percentile) => [name, percentile]));
  const head = h("tr", {}, h("th", { scope: "col" }, "Stage"), columns.map(([name, percentile]) => h("th", { scope: "col", class: "right" }, foreign(`${side(name)}${percentile}`))));
  const rows = arms[0].latency.map(({ stage }, index) => h("tr", {}, h("th", { scope: "row" }, STAGES[stage] ?? stage),
    arms.flatMap(({ latency }) => ["p50", "p95", "p99"].map((percentile) => h("td", { class: "right" }, milliseconds(latency[index][percentile]))))));
  const total = arms.map(({ name, latency }) => `${side(name)}${milliseconds(latency.find(({ stage }) => stage === "total")?.p50 ?? 0)}`).join(", ");
  return h("details", {}, h("summary", {}, foreign(`Time of a search: ${total} in the median`)),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Times" }, h("table", { class: "figures times" }, h("thead", {}, head), h("tbody", {}, rows))),
    h("p", { class: "muted small" }, "As they were made: one after the other, beside the server's other searches. A text that was embedded before is not embedded again."));
}
