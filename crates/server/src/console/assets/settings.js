/** The settings of a search: fields, their place in the address, and the body of the request. */

import { h } from "./dom.js";

/**
 * Every setting: its name in the address, its value when it is left out, and how it goes into the
 * body.
 */
const SETTINGS = {
  mode: { usual: "auto", write: (body, value) => { body.mode = value; } },
  k: { usual: "10", write: (body, value) => { body.k = Number(value); } },
  server: { usual: "", write: (body, value) => { filter(body).servers = [value]; } },
  tag: { usual: "", write: (body, value) => { filter(body).tags = value.split(",").map((tag) => tag.trim()).filter(Boolean); } },
  class: { usual: "", write: (body, value) => { Object.assign(filter(body), CLASSES[value]?.filter); } },
  ranker: { usual: "yes", write: (body, value) => { body.ranker = value === "yes"; } },
  companions: { usual: "yes", write: (body, value) => { body.companions = value === "yes"; } },
  split: { usual: "yes", write: (body, value) => { body.whole = value !== "yes"; } },
  fold: { usual: "no", write: (body, value) => { body.fold_duplicates = value === "yes"; } },
  fusion: { usual: "", write: (body, value) => { body.fusion = value; } },
  weight: { usual: "", write: (body, value) => { body.dense_weight = Number(value); } },
  score: { usual: "", write: (body, value) => { body.min_score = Number(value); } },
  confidence: { usual: "", write: (body, value) => { body.min_confidence = Number(value); } },
  budget: { usual: "", write: (body, value) => { body.budget_ms = Number(value); } },
};

/** What a tool does to the world, by the hints of its definition. */
const CLASSES = {
  reads: { name: "Only reads", filter: { read_only: true } },
  changes: { name: "Changes something", filter: { read_only: false, destructive: false } },
  destroys: { name: "May destroy", filter: { destructive: true } },
};

const MODES = [["auto", "Auto"], ["hybrid", "Hybrid"], ["lexical", "Words"], ["dense", "Meaning"]];

function filter(body) {
  body.filter ??= {};
  return body.filter;
}

/** The settings that an address has, with those it leaves out. */
export function readSettings(params, prefix = "") {
  const entries = Object.entries(SETTINGS).map(([name, { usual }]) => [name, params.get(prefix + name) ?? usual]);
  return Object.fromEntries(entries);
}

/** The settings that are not as usual, for an address. */
export function writeSettings(settings, prefix = "") {
  const changed = Object.entries(SETTINGS).filter(([name, { usual }]) => settings[name] !== usual);
  return Object.fromEntries(changed.map(([name]) => [prefix + name, settings[name]]));
}

/** The body of a search. */
export function searchBody(query, settings) {
  const body = { query, explain: true };
  for (const [name, { usual, write }] of Object.entries(SETTINGS)) {
    const value = settings[name];
    if (name === "k" || (value !== "" && value !== usual)) write(body, value);
  }
  return body;
}

/** The settings of the body of a search, as far as there are fields for them. */
export function settingsOf({ mode, filter = {}, ranker, companions, whole, fusion, dense_weight: weight, min_score: score, min_confidence: confidence, budget_ms: budget }) {
  const hints = ({ read_only: reads, destructive: destroys }) => `${reads} ${destroys}`;
  const ofHints = Object.keys(CLASSES).find((name) => hints(CLASSES[name].filter) === hints(filter)) ?? "";
  const given = {
    mode, weight, score, confidence, budget, fusion, class: ofHints, server: filter.servers?.[0], tag: filter.tags?.join(","),
    ranker: ranker === false ? "no" : undefined, companions: companions === false ? "no" : undefined, split: whole ? "no" : undefined,
  };
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, { usual }]) => [name, String(given[name] ?? usual)]));
}

/** The settings that are not as usual, for people. */
export function saySettings(settings) {
  const said = Object.entries(writeSettings(settings)).map(([name, value]) => `${name} ${value}`);
  return said.join(", ") || "the usual settings";
}

/**
 * The fields of the settings. Each change is noted in `settings` before `changed` is called.
 * @param {string} side tells two groups of fields apart
 * @param {string[]} without names of fields that are left out
 */
export function settingsFields(side, settings, servers, changed, without = []) {
  const note = (name) => (event) => {
    const input = event.target;
    settings[name] = input.type === "checkbox" ? (input.checked ? "yes" : "no") : input.value;
    said.textContent = saySettings(settings);
    changed();
  };
  const said = h("span", {}, saySettings(settings));
  const make = { note, settings, id: (name) => `${side}-${name}` };
  const more = h("details", { class: "more-settings" },
    h("summary", {}, "More"),
    h("div", { class: "fields" },
      checkbox(make, "ranker", "Ranker"),
      checkbox(make, "companions", "Companions"),
      checkbox(make, "split", "Split into needs"),
      !without.includes("fold") && checkbox(make, "fold", "Fold duplicates"),
      choice(make, "fusion", "Fusion", [["", "Usual"], ["convex", "Convex"], ["rrf", "RRF"]]),
      number(make, "weight", "Share of meaning", { min: 0, max: 1, step: 0.05 }),
      number(make, "score", "Least score", { min: 0, step: 0.05 }),
      number(make, "confidence", "Least confidence", { min: 0, max: 1, step: 0.05 }),
      number(make, "budget", "Budget, ms", { min: 0.1, step: 0.1 })));
  more.open = ["ranker", "companions", "split", "fold", "fusion", "weight", "score", "confidence", "budget"].some(
    (name) => settings[name] !== SETTINGS[name].usual);
  const fields = h("div", { class: "settings-fields", role: "group", "aria-label": `Settings ${side}` },
    h("div", { class: "fields" },
      choice(make, "mode", "Mode", MODES),
      choice(make, "server", "Server", [["", "All"], ...withChosen(servers, settings.server)]),
      text(make, "tag", "Tag", { placeholder: "any" }),
      choice(make, "class", "Class", [["", "All"], ...Object.entries(CLASSES).map(([value, { name }]) => [value, name])]),
      !without.includes("k") && number(make, "k", "Hits", { min: 1, max: 50, step: 1 })),
    more);
  return foldedOnPhones(fields, said);
}

/** On a phone the fields would fill half of the screen, so they are behind a line that says what is chosen. */
function foldedOnPhones(fields, said) {
  const wide = matchMedia("(min-width: 601px)");
  const box = h("details", { class: "settings", open: wide.matches }, h("summary", {}, "With ", said), fields);
  wide.addEventListener("change", () => { box.open ||= wide.matches; });
  return box;
}

/** The servers to choose from; one that an address names is among them even if it is gone. */
function withChosen(servers, chosen) {
  const all = chosen === "" || servers.includes(chosen) ? servers : [chosen, ...servers];
  return all.map((name) => [name, name]);
}

function labelled(make, name, label, input) {
  return h("label", { class: "setting", for: make.id(name) }, h("span", {}, label), input);
}

function choice(make, name, label, values) {
  const options = values.map(([value, caption]) => h("option", { value, selected: value === make.settings[name] }, caption));
  return labelled(make, name, label, h("select", { id: make.id(name), onchange: make.note(name) }, options));
}

function number(make, name, label, bounds) {
  const properties = { id: make.id(name), type: "number", inputmode: "decimal", value: make.settings[name], oninput: make.note(name), ...bounds };
  return labelled(make, name, label, h("input", properties));
}

function text(make, name, label, properties) {
  const all = { id: make.id(name), type: "text", value: make.settings[name], oninput: make.note(name), autocomplete: "off", ...properties };
  return labelled(make, name, label, h("input", all));
}

function checkbox(make, name, label) {
  const input = h("input", { id: make.id(name), type: "checkbox", checked: make.settings[name] === "yes", onchange: make.note(name) });
  return h("label", { class: "check", for: make.id(name) }, input, h("span", {}, label));
}
