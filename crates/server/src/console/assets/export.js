/** The answer in a format that a model's request takes, with its tokens. */

import { call, isAbort, ofCatalog } from "./api.js";
import { copyButton, h, replace, skeleton } from "./dom.js";
import { count, counted, foreign } from "./text.js";

const FORMATS = [
  ["openai", "OpenAI chat"],
  ["openai_responses", "OpenAI Responses"],
  ["anthropic", "Anthropic"],
  ["anthropic_reference", "Anthropic references"],
  ["mcp", "MCP"],
  ["names", "Names"],
  ["signature", "Signatures"],
];
/** The API counts tokens where a budget is given; this one fits every answer. */
const NO_BUDGET = 1_000_000;
/** Characters that are shown; all of them are copied. */
const SHOWN = 60_000;

/**
 * @param {() => ?{catalog: string, body: object}} request what is searched for
 * @param {{format: string, tokens: string}} chosen is kept up to date
 * @param {() => void} changed is called when another format is chosen
 */
export function exportPanel(request, chosen, changed) {
  const output = h("div", { class: "export-output", "aria-live": "off" });
  let aborter = new AbortController();
  const refresh = async () => {
    aborter.abort();
    aborter = new AbortController();
    const wanted = request();
    if (!panel.open || !wanted) return replace(output, h("p", { class: "muted" }, "Search for something first."));
    if (!output.querySelector("pre")) replace(output, skeleton(3, "short"));
    const body = { ...wanted.body, explain: false, format: chosen.format, max_tokens: Number(chosen.tokens) || NO_BUDGET };
    try {
      show(output, await call(ofCatalog(wanted.catalog, "/search"), { method: "POST", json: body, signal: aborter.signal }));
    } catch (error) {
      if (!isAbort(error)) replace(output, h("p", { class: "notice error" }, foreign(error.message)));
    }
    return undefined;
  };
  const choose = (name) => (event) => {
    chosen[name] = event.target.value;
    changed();
    refresh();
  };
  const options = FORMATS.map(([value, caption]) => h("option", { value, selected: value === chosen.format }, caption));
  const panel = h("details", { class: "export" },
    h("summary", {}, "Answer as tools for a model"),
    h("div", { class: "fields" },
      h("label", { class: "setting" }, h("span", {}, "Format"), h("select", { onchange: choose("format") }, options)),
      h("label", { class: "setting" }, h("span", {}, "Most tokens"), h("input", { type: "number", min: 64, max: NO_BUDGET, step: 1, placeholder: "no limit", value: chosen.tokens, onchange: choose("tokens") }))),
    output);
  panel.open = chosen.isOpen;
  panel.addEventListener("toggle", () => {
    if (chosen.isOpen === panel.open) return;
    chosen.isOpen = panel.open;
    changed();
    refresh();
  });
  return { panel, refresh };
}

function show(output, { tools, budget }) {
  const text = typeof tools === "string" ? tools : JSON.stringify(tools, null, 2);
  const cutTo = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
  replace(output,
    h("div", { class: "export-head" }, tokens(budget), copyButton(() => text)),
    h("pre", { tabindex: 0, "aria-label": "The tools in this format" }, foreign(cutTo)),
    text.length > SHOWN && h("p", { class: "muted" }, `The first ${count(SHOWN)} of ${counted(text.length, "character")}; all of them are copied.`));
}

function tokens(budget) {
  if (!budget) return h("span", {});
  const parts = [`${counted(budget.whole, "tool")} whole`];
  if (budget.shortened > 0) parts.push(`${count(budget.shortened)} shortened`);
  if (budget.omitted.length > 0) parts.push(`${count(budget.omitted.length)} left out`);
  return h("span", {}, h("b", {}, counted(budget.tokens, "token")), h("span", { class: "muted" }, ` · ${parts.join(", ")}`));
}
