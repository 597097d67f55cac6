/** The form of an evaluation: queries, as pasted or from a file, and how they are searched for. */

import { h, replace } from "./dom.js";
import { takeDrops } from "./load.js";
import { readSettings, searchBody, settingsFields, settingsOf } from "./settings.js";
import { bytes, counted, foreign, oneLine } from "./text.js";

/** The API takes 4 MiB with all that is around the queries. */
const MOST_BYTES = 4_000_000;
/** The API takes reports of 32 MiB. */
const MOST_REPORT_BYTES = 32 * 1024 * 1024;
/** Characters of a long paste. */
const LONG_PASTE = 20_000;
const QRELS = /qrels|trec|test\.tsv$/iu;
/** Settings that an evaluation has no use for: it always looks at 50 hits, each a tool of its own. */
const WITHOUT = ["k", "fold"];
const USUAL = new URLSearchParams();

const FORMATS = [
  ["One object a line, as toolscout eval reads it", '{"id": "q1", "query": "open a new issue", "relevant": ["github/create_issue"]}'],
  ["A query that no tool fits", '{"id": "q2", "query": "knit me a scarf", "relevant": [], "kind": "none"}'],
  ["Plain text, with relevant tools after tabs", "open a new issue\tgithub/create_issue"],
  ["Plain text alone: not judged, only compared with the last time", "open a new issue"],
];

export class EvaluationForm {
  constructor() {
    this.settings = readSettings(USUAL);
    this.others = null;
    this.servers = [];
    this.submit = () => {};
    this.begin = () => {};
    this.sendReport = () => {};
    this.draw();
  }

  draw() {
    this.queries = h("textarea", { id: "queries", class: "queries", rows: 9, spellcheck: "false", autocomplete: "off", wrap: "off", placeholder: "One query a line", "aria-describedby": "queries-count", oninput: () => this.showCount(), onpaste: pasteLong });
    this.qrels = h("textarea", { id: "qrels", class: "queries", rows: 5, spellcheck: "false", autocomplete: "off", wrap: "off", placeholder: "q1 0 github/create_issue 1", "aria-label": "Judgements", onpaste: pasteLong });
    this.judgements = h("details", { class: "more-settings" }, h("summary", {}, "Judgements from a file of their own (TREC or BEIR qrels)"), this.qrels);
    this.name = h("input", { id: "evaluation-name", maxlength: 200, autocomplete: "off", placeholder: "optional" });
    this.counted = h("span", { id: "queries-count", class: "muted", role: "status" });
    this.failure = h("div", {});
    this.sides = h("div", { class: "columns" });
    this.compareButton = h("button", { type: "button", onclick: () => this.toggleCompare() });
    this.runButton = h("button", { class: "primary" }, "Run");
    const file = h("input", { type: "file", accept: ".jsonl,.ndjson,.json,.txt,.tsv,.trec,.qrels", multiple: true, class: "sr", tabindex: -1, "aria-label": "Files of queries", onchange: (event) => this.take(Array.from(event.target.files)) });
    const report = h("input", { type: "file", accept: ".json", class: "sr", tabindex: -1, "aria-label": "File of a report", onchange: (event) => this.take(Array.from(event.target.files)) });
    const formats = FORMATS.map(([title, example]) => h("div", {}, h("dt", { class: "muted" }, title), h("dd", {}, h("pre", {}, example))));
    this.element = h("form", { class: "evaluation-form", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      h("div", { class: "catalog-head" }, h("h1", {}, "New evaluation"),
        h("button", { type: "button", class: "quiet", title: "A report of toolscout eval --json, or of another server", onclick: () => report.click() }, "Send a report"), report),
      h("p", { class: "muted" }, "Ask the catalog many queries at once: see how often the right tools come first, and what has changed since the last time."),
      h("div", { class: "queries-head" }, h("label", { for: "queries" }, "Queries"), this.counted,
        h("button", { type: "button", class: "quiet", onclick: () => file.click() }, "Choose a file"), file),
      this.queries,
      h("details", { class: "formats", open: true }, h("summary", {}, "Formats"), h("dl", {}, formats)),
      this.judgements,
      this.sides,
      h("div", { class: "actions evaluation-foot" },
        h("label", { class: "setting", for: "evaluation-name" }, h("span", {}, "Name"), this.name), this.compareButton,
        h("button", { type: "button", title: "Grade the tools that are found for these queries yourself", onclick: () => this.judge() }, "Judge by hand"), this.runButton),
      this.failure);
    takeDrops(this.element, (files) => this.take(files));
    this.drawSettings();
    this.showCount();
  }

  drawSettings() {
    this.compareButton.textContent = this.others ? "Stop comparing" : "Compare settings";
    this.compareButton.setAttribute("aria-pressed", String(this.others !== null));
    const sides = this.others ? [this.settings, this.others] : [this.settings];
    const names = ["A", "B"];
    this.sides.classList.toggle("two", sides.length === 2);
    replace(this.sides, sides.map((settings, index) => h("div", { class: "column" },
      sides.length === 2 && h("h2", { class: "side" }, names[index]), settingsFields(names[index], settings, this.servers, () => {}, WITHOUT))));
  }

  toggleCompare() {
    this.others = this.others ? null : { ...this.settings, mode: this.settings.mode === "lexical" ? "auto" : "lexical" };
    this.drawSettings();
  }

  /** @param {string[]} servers */
  setServers(servers) {
    if (servers.length === 0 || this.sides.contains(document.activeElement)) return;
    this.servers = servers;
    this.drawSettings();
  }

  setBusy(isBusy) {
    this.runButton.disabled = isBusy;
    this.runButton.textContent = isBusy ? "Running…" : "Run";
  }

  /** The queries and settings of an earlier evaluation. */
  fill(evaluation, queries) {
    const [first, second] = evaluation.arms;
    this.queries.value = queries;
    this.qrels.value = "";
    this.name.value = "";
    this.settings = settingsOf(first.search ?? {});
    this.others = second?.search ? settingsOf(second.search) : null;
    this.drawSettings();
    this.showCount();
    this.fail(null);
  }

  showCount() {
    const lines = this.queries.value.match(/^.*\S.*$/gmu)?.length ?? 0;
    this.counted.textContent = lines > 0 ? counted(lines, "line") : "";
  }

  async take(files) {
    for (const file of files.slice(0, 8)) {
      const report = await reportOf(file);
      if (report) {
        this.sendReport(file, report);
        return;
      }
      if (file.size > MOST_BYTES) {
        this.say(`${oneLine(file.name, 80)} has ${bytes(file.size)}; an evaluation takes ${bytes(MOST_BYTES)}. Take a sample of its lines.`);
        continue;
      }
      const text = await file.text();
      if (QRELS.test(file.name)) {
        this.qrels.value = text;
        this.judgements.open = true;
      } else this.queries.value = text;
    }
    this.showCount();
  }

  send() {
    if (this.queries.value.trim() === "") {
      this.say("Write or drop queries first.");
      this.queries.focus();
      return;
    }
    const name = this.name.value.trim();
    const qrels = this.qrels.value.trim();
    this.submit({
      queries: this.queries.value, search: arm(this.settings),
      ...(name && { name }), ...(qrels && { qrels: this.qrels.value }), ...(this.others && { compare: arm(this.others) }),
    });
  }

  /** Begins a judging of the queries. */
  judge() {
    const name = this.name.value.trim();
    if (this.queries.value.trim() === "") {
      this.say("Write or drop queries first.");
      this.queries.focus();
    } else this.begin({ queries: this.queries.value, ...(name && { name }) });
  }

  /** Says why it was refused, and goes to the line where it is known. */
  fail(error) {
    if (!error) {
      replace(this.failure);
      return;
    }
    this.say(error.message);
    const [, line] = /(?:\bline |^queries:)(\d+)/u.exec(error.message) ?? [];
    if (error.code === "invalid_queries" && line) this.select(Number(line));
  }

  say(text) {
    replace(this.failure, h("p", { class: "notice error", role: "alert" }, foreign(text)));
    this.failure.scrollIntoView({ block: "nearest" });
  }

  select(number) {
    const before = this.queries.value.split("\n", number);
    const line = before.pop() ?? "";
    const start = before.reduce((length, { length: own }) => length + own + 1, 0);
    this.queries.focus();
    this.queries.setSelectionRange(start, start + line.length);
    this.queries.scrollTop = (number - 3) * (this.queries.scrollHeight / Math.max(this.queries.value.split("\n").length, 1));
  }
}

/** What a file has, if it is a report. */
async function reportOf(file) {
  if (!/\.json$/iu.test(file.name) || file.size > MOST_REPORT_BYTES) return null;
  try {
    const value = JSON.parse(await file.text());
    return Array.isArray(value?.sets) ? value : null;
  } catch {
    return null;
  }
}

/** Browsers take many seconds to paste thousands of lines; this is at once, and cannot be undone by a key. */
function pasteLong(event) {
  const text = event.clipboardData.getData("text/plain");
  if (text.length < LONG_PASTE) return;
  event.preventDefault();
  const box = event.target;
  box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
  box.dispatchEvent(new Event("input"));
}

/** The settings of an arm in the API. */
function arm(settings) {
  const { query, explain, k, fold_duplicates: fold, ...rest } = searchBody("", settings);
  return rest;
}
