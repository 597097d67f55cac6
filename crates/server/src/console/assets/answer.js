/** The answer to a search: what was understood, how long it took, and the hits. */

import { append, h, icon } from "./dom.js";
import { embedderName, hitItem } from "./hit.js";
import { address } from "./place.js";
import { counted, foreign, milliseconds, oneLine } from "./text.js";

const STAGES = [["embed", "embed"], ["lexical", "words"], ["dense", "meaning"], ["fuse", "fuse"], ["rank", "rank"]];
/**
 * @param {object} answer of the API
 * @param {{catalog: string, other: ?object, opened: Set<string>, onToggle: Function, onRight: Function, onChange: ?Function}} context `other` is
 *   the answer that this one is compared with
 */
export function answerView(answer, context) {
  const explain = answer.hits[0]?.explain ?? {};
  return [
    summary(answer),
    answer.match === "none" && answer.hits.length > 0 && nothingFits(answer),
    answer.degraded && degraded(answer.degraded),
    understood(explain, answer),
    answer.hits.length > 0 ? [hits(answer, explain.clauses ?? [], context), legend()] : noMatch(answer, context.catalog),
  ];
}

function summary(answer) {
  const { confidence, match } = answer;
  const sure = confidence !== null && h("span", { class: "fact", title: "the probability that one of the first five is right" },
    "confidence ", h("b", {}, confidence.toFixed(2)));
  return h("div", { class: "summary" },
    h("span", { class: "fact" }, h("b", {}, counted(answer.hits.length, "hit"))),
    h("span", { class: match === "none" ? "fact unsure" : "fact", title: answer.advice }, "match ", h("b", {}, match)),
    sure,
    h("span", { class: "fact" }, modeName(answer)),
    timings(answer.took_ms));
}

function modeName({ mode, variant, embedders }) {
  const names = embedders.map(embedderName).join(", ");
  const less = variant === "full" ? "" : `, ${variant}`;
  return h("span", { title: names }, mode, less);
}

function timings(took) {
  const stages = STAGES.map(([stage, name]) => [name, took[stage]]).filter(([, ms]) => ms > 0);
  const parts = stages.map(([name, ms], index) => {
    const part = h("span", { class: `stage stage-${index}` });
    part.style.flexGrow = String(ms / took.total);
    part.title = `${name} ${milliseconds(ms)}`;
    return part;
  });
  const legend = stages.map(([name, ms], index) => h("li", {}, h("i", { class: `stage-${index}` }), `${name} `, h("span", { class: "number" }, milliseconds(ms))));
  return h("details", { class: "timings" },
    h("summary", {}, h("b", {}, milliseconds(took.total)), h("span", { class: "stages", "aria-hidden": "true" }, parts)),
    h("ul", {}, legend));
}

function degraded({ reason, pending_embeddings: pending }) {
  return h("p", { class: "notice warn" }, h("b", {}, "Not everything took part. "), foreign(reason), pending > 0 && ` ${counted(pending, "tool")} without vectors yet.`);
}

/** What became of the request: corrections, added words, a translation, its needs, and what nothing matched. */
function understood(explain, { unmatched }) {
  const rows = [];
  for (const { from, to } of (explain.fuzzy ?? []).slice(0, 8)) rows.push(["corrected", foreign(from), " → ", h("b", {}, foreign(to))]);
  for (const { said, words } of (explain.everyday ?? []).slice(0, 8)) rows.push(["added", foreign(said), " + ", h("b", {}, foreign(words.join(", ")))]);
  for (const { kind, phrase, words } of (explain.owner_words ?? []).slice(0, 8)) if (kind === "synonym") rows.push(["synonym", foreign(phrase), " → ", h("b", {}, foreign(words.join(", ")))]);
  if (explain.translation) rows.push(["translated", foreign(explain.translation)]);
  (explain.clauses ?? []).forEach((clause, index) => rows.push([`need ${index + 1}`, foreign(clause)]));
  if (unmatched.length > 0) rows.push(["in no hit", foreign(unmatched.join(", "))]);
  if (rows.length === 0) return null;
  return h("ul", { class: "understood", "aria-label": "What was understood" }, rows.map(([kind, ...rest]) => h("li", {}, h("span", { class: "kind" }, kind), " ", rest)));
}

function hits(answer, clauses, context) {
  const ranks = new Map(context.other?.hits.map((hit, index) => [hit.id, index + 1]));
  const items = answer.hits.map((hit, index) => hitItem(hit, index + 1, {
    catalog: context.catalog,
    clauses,
    move: context.other && move(index + 1, ranks.get(hit.id)),
    isOpen: context.opened.has(hit.id),
    onToggle: context.onToggle,
    onRight: (given, button) => context.onRight(answer, given, button),
    onChange: context.onChange && ((given) => context.onChange(answer, given)),
  }));
  return h("ol", { class: answer.match === "none" ? "hits unfit" : "hits" }, items);
}

const LEGEND = {
  words: "words of the request in the tool's name, description and arguments (BM25)",
  table: "meaning, by a table of word vectors",
  languages: "meaning, by a table of word vectors for many languages",
  encoder: "meaning, by a small neural network that reads the whole text",
  ranker: "the place that the learned ranker gave, and the place before it",
  memory: "what earlier calls and feedback say of this request",
};

function legend() {
  const rows = Object.entries(LEGEND).map(([name, means]) => h("div", {}, h("dt", {}, name), h("dd", {}, means)));
  return h("details", { class: "legend" }, h("summary", {}, "What the bars mean"), h("dl", {}, rows));
}

/** Above hits that are only the nearest tools. */
function nothingFits({ advice, unmatched }) {
  return h("div", { class: "notice warn nothing-fits" }, h("h2", {}, "No tool fits this request"),
    h("p", {}, foreign(advice)),
    unmatched.length > 0 && h("p", {}, "No tool has anything for: ", h("b", {}, foreign(unmatched.join(", ")))),
    h("p", { class: "muted" }, "The tools below are the nearest ones. A model is told the same."));
}

/** How a hit moved against the other answer. */
function move(rank, other) {
  if (other === undefined) return h("span", { class: "move new" }, "new");
  const by = other - rank;
  if (by === 0) return h("span", { class: "move" }, "=");
  const direction = by > 0 ? "up" : "down";
  return h("span", { class: `move ${direction}` }, h("span", { "aria-hidden": "true" }, by > 0 ? "▲" : "▼"), Math.abs(by), h("span", { class: "sr" }, ` ${direction}`));
}

function noMatch(answer, catalog) {
  const near = (answer.no_match?.nearest ?? []).slice(0, 5);
  const links = near.map((id) => h("li", {}, h("a", { href: address("catalog", { c: catalog, tool: id }) }, foreign(oneLine(id)))));
  return h("div", { class: "empty" }, icon("search"), h("h2", {}, "No tool matches"),
    h("p", {}, foreign(answer.no_match?.reason ?? "Nothing passed the filters.")),
    near.length > 0 && [h("p", { class: "muted" }, "Nearest, though not near enough:"), append(h("ul", { class: "plain" }), links)]);
}
