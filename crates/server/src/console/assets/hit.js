/** One hit: the tool, and how it got its rank. */

import { bar, h } from "./dom.js";
import { address } from "./place.js";
import { foreign, long } from "./text.js";

/** Embedders that ship, by how their ids begin. */
const EMBEDDERS = { "static-table": "table", "languages-table": "languages", "tool-encoder": "encoder" };
/** Most reasons and legs that are listed. */
export const MOST_ROWS = 16;

/** The short name of an embedder. */
export const embedderName = (id) => EMBEDDERS[id.split("/", 1)[0]] ?? id;

/**
 * @param {object} hit of the answer
 * @param {number} rank from 1
 * @param {{catalog: string, move: ?Node, isOpen: boolean, onToggle: Function, onRight: Function, onChange: ?Function, clauses: string[]}} context
 */
export function hitItem(hit, rank, context) {
  const explain = hit.explain ?? {};
  const terms = [...new Set((explain.matched ?? []).flatMap((field) => field.terms))];
  const link = h("a", { class: "name", href: address("catalog", { c: context.catalog, tool: hit.id }) }, foreign(hit.name, terms));
  return h("li", { class: "hit", "data-id": hit.id, tabindex: "-1" },
    h("div", { class: "rank" }, h("span", { class: "number" }, rank), context.move),
    h("div", { class: "body" },
      h("div", { class: "head" }, link, hit.server && h("span", { class: "server" }, foreign(hit.server)), badges(hit, explain, context.clauses)),
      hit.description ? long(hit.description, terms) : h("p", { class: "muted" }, "No description."),
      signals(explain),
      why(hit, explain, context)),
    h("div", { class: "score" }, h("span", { class: "number" }, hit.score.toFixed(3)), bar(hit.score)));
}

function badges(hit, explain, clauses) {
  const moved = explain.memory_moved;
  return [
    hit.kind && h("span", { class: "badge" }, hit.kind),
    hit.flagged && h("span", { class: "badge warn", title: "no person has decided on this tool; searches put it last" }, `flagged: it ${hit.flagged.join(", ")}`),
    explain.name_match && h("span", { class: "badge accent" }, `name: ${explain.name_match}`),
    hit.companion_of && h("span", { class: "badge accent", title: hit.companion_of.reason }, `companion for ${hit.companion_of.parameter} of `, foreign(hit.companion_of.id)),
    hit.serves && h("span", { class: "badge", title: hit.serves }, `need ${clauses.indexOf(hit.serves) + 1 || "?"}`),
    ...(explain.owner_words ?? []).map(ownerEffect).filter(Boolean).map((text) => h("span", { class: "badge", title: "the owner's words" }, foreign(text))),
    moved && moved.before !== moved.after && h("span", { class: "badge" }, `memory ${moved.before} → ${moved.after}`),
    ...(hit.also_on ?? []).slice(0, 3).map((id) => h("span", { class: "badge", title: "a near-duplicate" }, "also ", foreign(id))),
    (hit.also_on ?? []).length > 3 && h("span", { class: "badge" }, `and ${hit.also_on.length - 3} more`),
  ];
}

/** What the owner's words did to a hit; nothing for synonyms, which are shown with the request. */
function ownerEffect({ kind, name, place, of, factor }) {
  switch (kind) {
    case "alias": return `alias ${name}`;
    case "pin": return `pinned to ${place}`;
    case "boost": return `boost ${factor} of ${of}`;
    case "description": return "owner's description";
    default: return null;
  }
}

/** What each part of the search gave, at a glance. */
function signals(explain) {
  const parts = [["words", explain.lexical?.normalised]];
  for (const [id, leg] of (explain.dense ?? []).slice(0, MOST_ROWS)) parts.push([embedderName(id), leg.normalised]);
  const shown = parts.map(([name, share]) => signal(name, share ?? 0, share === undefined ? "–" : share.toFixed(2)));
  const { ranker, memory } = explain;
  if (ranker) {
    const moved = ranker.before === ranker.after ? `${ranker.after}` : `${ranker.before} → ${ranker.after}`;
    // The ranker's score has no bounds; the logistic function has.
    shown.push(signal("ranker", 1 / (1 + Math.exp(-ranker.score)), moved));
  }
  if (memory !== undefined) shown.push(signal("memory", memory, memory.toFixed(2)));
  return h("dl", { class: "signals" }, shown);
}

function signal(name, share, value) {
  return h("div", { class: "signal" }, h("dt", {}, foreign(name)), h("dd", {}, bar(share), h("span", { class: "number" }, value)));
}

function why(hit, explain, context) {
  const details = h("details", { class: "why" }, h("summary", {}, "Why"), h("div", { class: "why-body" }));
  const fill = async () => {
    if (!details.open || details.lastChild.hasChildNodes()) return;
    const { reasonsOf } = await import("./hit_why.js");
    details.lastChild.replaceChildren(...reasonsOf(explain));
  };
  details.open = context.isOpen;
  fill();
  details.addEventListener("toggle", () => {
    fill();
    context.onToggle(hit.id, details.open);
  });
  const right = h("button", { type: "button", class: "link", onclick: (event) => context.onRight(hit, event.currentTarget) }, "This was right");
  const change = context.onChange && h("button", { type: "button", class: "link", onclick: () => context.onChange(hit) }, "Change");
  return h("div", { class: "foot" }, details, right, change);
}
