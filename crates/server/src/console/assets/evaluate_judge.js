/** Judging by hand: one query at a time, with the tools that are found for it, graded by keys alone. */

import { call, isAbort, ofCatalog, request } from "./api.js";
import { ask, tell } from "./dialog.js";
import { announce, bar, h, replace, skeleton } from "./dom.js";
import { points } from "./evaluate_figures.js";
import { count, counted, dates, foreign, long, oneLine } from "./text.js";

const STORED_JUDGE = "toolscout.judge";
const MOST_JUDGE_CHARS = 100;
const GRADES = ["does not help", "does a part of it, or helps", "does it, and another tool may do it better", "does exactly what is asked"];
/** Lines of a judge's file that are sent at a time. */
const MOST_LINES = 2000;
const REVOKE_MS = 300;

/** How far a judging is, in a few words. */
export function judgedOf({ queries, judges }) {
  const furthest = Math.max(0, ...judges.map(({ judged, skipped }) => judged + skipped));
  return `${count(furthest)} of ${counted(queries, "query")}${judges.length > 1 ? `, ${counted(judges.length, "judge")}` : ""}`;
}

export class JudgeView {
  /** @param {{catalog: string, id: string, number: number, signal: AbortSignal, moved: (number: number) => void, changed: (judging: object) => void, deleted: () => void}} context */
  constructor(context) {
    Object.assign(this, context);
    this.judge = localStorage.getItem(STORED_JUDGE) ?? "";
    this.undone = [];
    this.saving = Promise.resolve();
    this.head = h("div", {});
    this.problem = h("div", {});
    this.body = h("div", { class: "judge-body" });
    this.foot = h("div", {});
    this.element = h("article", { class: "evaluation judging" }, this.head, this.problem, this.body, this.foot);
    document.addEventListener("keydown", (event) => this.key(event), { signal: this.signal });
  }

  path(rest = "") {
    return ofCatalog(this.catalog, `/judgings/${encodeURIComponent(this.id)}${rest}`);
  }

  /** The way to this judge's grades. */
  ofJudge(judge) {
    return `?${new URLSearchParams({ judge })}`;
  }

  async load() {
    replace(this.body, skeleton(4, "tall"));
    try {
      this.judging = await call(this.path(), { signal: this.signal });
      this.drawHead();
      this.drawFoot();
      if (this.judge) await this.open(this.number || this.next());
      else this.askName();
    } catch (error) {
      this.failed(error, "This judging is not shown");
    }
  }

  failed(error, title) {
    if (isAbort(error)) return;
    replace(this.body, h("div", { class: "empty", role: "alert" }, h("h2", {}, title), h("p", {}, foreign(error.message)),
      this.judging && h("button", { type: "button", onclick: () => this.load() }, "Try again")));
  }

  get progress() {
    return this.judging.judges.find(({ judge }) => judge === this.judge) ?? { judged: 0, skipped: 0, grades: 0, next: 1 };
  }

  /** The first query that is left; 0 after the last one. */
  next() {
    return this.progress.next ?? 0;
  }

  askName() {
    const name = h("input", { id: "judge-name", maxlength: MOST_JUDGE_CHARS, autocomplete: "name", required: true, value: this.judge });
    const form = h("form", { class: "judge-name", onsubmit: (event) => { event.preventDefault(); this.setName(name.value.trim()); } },
      h("label", { class: "setting", for: "judge-name" }, h("span", {}, "Your name, which stands with your grades"), name), h("button", { class: "primary" }, "Begin"));
    replace(this.body, form);
    name.focus();
  }

  setName(name) {
    if (name === "") return;
    localStorage.setItem(STORED_JUDGE, name);
    this.judge = name;
    this.undone = [];
    this.drawHead();
    this.drawFoot();
    this.open(this.next());
  }

  drawHead() {
    const { name, created_at_ms: at, queries } = this.judging;
    const { judged, skipped } = this.progress;
    const said = [`${count(judged)} of ${count(queries)} judged`, skipped > 0 && `${count(skipped)} skipped`].filter(Boolean).join(", ");
    replace(this.head,
      h("div", { class: "catalog-head" }, h("h1", {}, name ? foreign(oneLine(name, 80)) : dates.format(at)),
        h("div", { class: "actions" },
          this.judge && h("button", { type: "button", class: "quiet", onclick: () => this.askName() }, "Judge: ", foreign(oneLine(this.judge, 40))),
          h("button", { type: "button", class: "quiet", onclick: () => this.remove() }, "Delete"))),
      h("p", { class: "judge-progress" }, h("span", { class: "muted", role: "status" }, said), bar((judged + skipped) / Math.max(queries, 1))));
  }

  /** Shows a query; 0 says that none is left. */
  async open(number, at = null) {
    this.query = null;
    if (number === 0) {
      this.drawEnd();
      return;
    }
    try {
      const query = await call(this.path(`/queries/${number}${this.ofJudge(this.judge)}`), { signal: this.signal });
      this.query = query;
      const left = query.tools.findIndex(({ id }) => query.relevant[id] === undefined);
      this.at = at ?? Math.max(left, 0);
      this.number = number;
      this.moved(number);
      this.drawQuery();
    } catch (error) {
      this.failed(error, "This query is not shown");
    }
  }

  drawEnd() {
    const { judged, skipped } = this.progress;
    this.moved("");
    replace(this.body, h("div", { class: "empty" }, h("h2", {}, "Nothing is left to judge"),
      h("p", {}, `You have judged ${counted(judged, "query")}${skipped > 0 ? ` and skipped ${count(skipped)}` : ""}. Export the grades below, and evaluate with them.`),
      this.undone.length > 0 && h("button", { type: "button", onclick: () => this.undo() }, "Undo (U)"),
      h("button", { type: "button", onclick: () => this.open(1) }, "Look through them again")));
  }

  drawQuery() {
    const { number, query, tools } = this.query;
    const button = (caption, action, properties = {}) => h("button", { type: "button", onclick: action, ...properties }, caption);
    this.rows = tools.map((tool, index) => this.row(tool, index));
    this.undoButton = button("Undo (U)", () => this.undo());
    replace(this.body,
      h("p", { class: "muted" }, `Request ${count(number)} of ${count(this.judging.queries)}`),
      h("p", { class: "judge-query" }, foreign(query)),
      h("div", { class: "actions judge-actions" },
        button("None fits (N)", () => this.none(), { disabled: tools.length === 0 }), button("Skip (S)", () => this.skip()), this.undoButton,
        button("Previous (P)", () => this.step(-1), { class: "quiet", disabled: number === 1 }), button("Next (Enter)", () => this.step(1), { class: "quiet", disabled: number === this.judging.queries })),
      tools.length > 0 ? h("ol", { class: "judge-tools" }, this.rows) : h("p", { class: "notice" }, "Search finds no tool for this request. Skip it."),
      h("p", { class: "muted small" }, GRADES.map((meaning, grade) => `${grade} ${meaning}`).reverse().join("; "), ". The arrow keys move between the tools, which come by name."));
    this.mark(false);
  }

  row({ id, signature, description }, index) {
    // The id stands above it.
    const parameters = signature.startsWith(id) ? signature.slice(id.length) : signature;
    const buttons = GRADES.map((meaning, grade) => h("button", { type: "button", class: "grade", title: meaning, "aria-label": `${grade}: ${meaning}`, onclick: () => { this.at = index; this.grade(grade); } }, String(grade)));
    return h("li", { class: "judge-tool", tabindex: -1, onfocusin: () => { if (this.at !== index) { this.at = index; this.mark(false); } } },
      h("div", { class: "judge-text" }, h("b", {}, foreign(oneLine(id, 160))), h("small", { class: "muted judge-signature" }, foreign(oneLine(parameters, 200))), long(description || "No description.")),
      h("div", { class: "grades", role: "group", "aria-label": `Grade of ${oneLine(id, 80)}` }, buttons));
  }

  /** Shows which tool is the present one, and the grades. */
  mark(isMoved) {
    const { tools, relevant } = this.query;
    this.undoButton.disabled = this.undone.length === 0;
    this.rows.forEach((row, index) => {
      if (index === this.at) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
      row.querySelectorAll(".grade").forEach((button, grade) => button.setAttribute("aria-pressed", String(relevant[tools[index].id] === grade)));
    });
    if (isMoved) this.rows[this.at]?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = this.actionOf(event.key, event.target);
    if (!action) return;
    event.preventDefault();
    action();
  }

  actionOf(key, target) {
    if (key.toLowerCase() === "u") return () => this.undo();
    if (!this.query) return null;
    if (/^[0-3]$/u.test(key)) return () => this.grade(Number(key));
    // A button that has the focus is pressed by these keys.
    if (key === "Enter") return target.closest?.("button, a, summary") ? null : () => this.step(1);
    const actions = { ArrowDown: () => this.move(1), j: () => this.move(1), ArrowUp: () => this.move(-1), k: () => this.move(-1), n: () => this.none(), s: () => this.skip(), p: () => this.step(-1) };
    return actions[key] ?? actions[key.toLowerCase()] ?? null;
  }

  move(by) {
    this.at = Math.min(Math.max(this.at + by, 0), this.query.tools.length - 1);
    this.mark(true);
    const tool = this.query.tools[this.at];
    if (tool) announce(oneLine(`${tool.id}: ${tool.description}`, 300));
  }

  step(by) {
    const number = this.query.number + by;
    if (number >= 1 && number <= this.judging.queries) this.open(number);
    else if (by > 0) this.open(this.next());
  }

  /** Notes what is so now, to come back to it. */
  remember() {
    const { number, id, relevant, done } = this.query;
    this.undone.push({ number, id, relevant: { ...relevant }, done, at: this.at });
  }

  async grade(grade) {
    const { tools, relevant } = this.query;
    const tool = tools[this.at];
    if (!tool) return;
    this.remember();
    relevant[tool.id] = grade;
    const left = tools.findIndex(({ id }, index) => index > this.at && relevant[id] === undefined);
    const first = left >= 0 ? left : tools.findIndex(({ id }) => relevant[id] === undefined);
    announce(`${grade} for ${oneLine(tool.id, 80)}`);
    if (first < 0) {
      this.mark(false);
      await this.finish(relevant);
      return;
    }
    this.at = first;
    this.mark(true);
    this.query.done = false;
    this.save(this.query.id, relevant, false);
  }

  none() {
    if (this.query.tools.length === 0) return;
    this.remember();
    this.finish(Object.fromEntries(this.query.tools.map(({ id }) => [id, 0])));
  }

  skip() {
    this.remember();
    this.finish(this.query.relevant);
  }

  /** Keeps the grades of a query that is done, and goes to the next one. */
  async finish(relevant) {
    const { id, number } = this.query;
    if (!(await this.save(id, relevant, true))) return;
    await this.open(number < this.judging.queries ? number + 1 : this.next());
  }

  /** Takes the last grade back, or what was done to a whole query. */
  async undo() {
    const before = this.undone.pop();
    if (!before) return;
    if (!(await this.save(before.id, before.relevant, before.done))) {
      this.undone.push(before);
      return;
    }
    announce("Taken back");
    await this.open(before.number, before.at);
  }

  /** Sends grades in the order in which they were given. Says whether they are kept. */
  save(id, relevant, done) {
    const body = { judge: this.judge, judgements: [{ id, relevant: { ...relevant }, done }] };
    this.saving = this.saving.then(() => this.send(body));
    return this.saving;
  }

  async send(body) {
    try {
      const { judges } = await call(this.path("/judgements"), { method: "POST", json: body, signal: this.signal });
      replace(this.problem);
      this.noteProgress(judges);
      return true;
    } catch (error) {
      if (!isAbort(error)) this.sayUnsaved(error);
      return false;
    }
  }

  sayUnsaved(error) {
    replace(this.problem, h("p", { class: "notice error", role: "alert" }, "The last grade was not kept: ", foreign(error.message), " Grade the tool again."));
    if (this.query) this.open(this.query.number, this.at);
  }

  noteProgress(judges) {
    const names = new Set(judges.map(({ judge }) => judge));
    // A judge who took everything back has no grades.
    const kept = judges.filter(({ judged, skipped, grades }) => judged + skipped + grades > 0);
    this.judging.judges = [...this.judging.judges.filter(({ judge }) => !names.has(judge)), ...kept].sort((a, b) => (a.judge < b.judge ? -1 : 1));
    this.drawHead();
    this.drawFoot();
    this.changed(this.judging);
  }

  drawFoot() {
    const { judges } = this.judging;
    const file = h("input", { type: "file", accept: ".jsonl", class: "sr", tabindex: -1, "aria-label": "File of judgements", onchange: (event) => this.take(event.target.files[0]) });
    const rows = judges.map(({ judge, judged, skipped, grades }) => h("tr", {}, h("th", { scope: "row" }, foreign(oneLine(judge, 60))),
      [judged, skipped, grades].map((number) => h("td", { class: "right" }, count(number))),
      h("td", {}, h("button", { type: "button", class: "link", "aria-label": `Export ${oneLine(judge, 60)}`, onclick: () => this.saveFile(judge) }, "Export"))));
    const head = ["Judge", "Judged", "Skipped", "Grades", ""].map((caption, index) => (caption ? h("th", { scope: "col", class: index > 0 && "right" }, caption) : h("td", {})));
    replace(this.foot, h("section", {}, h("div", { class: "catalog-head" }, h("h2", {}, "Judges"),
      h("button", { type: "button", class: "quiet", title: "Lines of toolscout eval judge, of a person or a model", onclick: () => file.click() }, "Add a judge's file"), file),
      judges.length > 0 ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Judges" }, h("table", { class: "figures times" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))) : h("p", { class: "muted" }, "Nobody has judged yet."),
      this.agreementBox()));
  }

  /** How far this judge and another one agree, on request. */
  agreementBox() {
    const others = this.judging.judges.filter(({ judge }) => judge !== this.judge);
    if (others.length === 0 || !this.judging.judges.some(({ judge }) => judge === this.judge)) return null;
    const said = h("div", { role: "status" });
    const options = [h("option", { value: "" }, "choose"), ...others.map(({ judge }) => h("option", { value: judge }, oneLine(judge, 60)))];
    const chooser = h("select", { onchange: (event) => { if (event.target.value) this.compare(event.target.value, said); else replace(said); } }, options);
    return h("div", {}, h("label", { class: "compare-with" }, h("span", { class: "muted" }, "Agreement with "), chooser), said);
  }

  async compare(other, said) {
    try {
      const found = await call(this.path(`/agreement?${new URLSearchParams({ a: this.judge, b: other })}`), { signal: this.signal });
      replace(said, agreementOf(found, this.judge, other));
    } catch (error) {
      if (!isAbort(error)) replace(said, h("p", { class: "notice error", role: "alert" }, foreign(error.message)));
    }
  }

  async saveFile(judge) {
    try {
      const response = await request(this.path(`/judgements${this.ofJudge(judge)}`), { accept: "*/*", signal: this.signal });
      const content = URL.createObjectURL(await response.blob());
      h("a", { href: content, download: `judged-${judge.replace(/[^\p{L}\p{N}]+/gu, "-")}.jsonl` }).click();
      setTimeout(() => URL.revokeObjectURL(content), REVOKE_MS);
    } catch (error) {
      if (!isAbort(error)) await tell("The grades were not exported", error);
    }
  }

  /** Adds what another judge has graded, as `eval judge` writes it. */
  async take(file) {
    if (!file) return;
    try {
      const lines = (await file.text()).split("\n").filter((line) => line.trim() !== "").map(readLine);
      for (let start = 0; start < lines.length; start += MOST_LINES) {
        const judgements = lines.slice(start, start + MOST_LINES);
        const { judges } = await call(this.path("/judgements"), { method: "POST", json: { judge: file.name.replace(/\.[^.]*$/u, ""), judgements }, signal: this.signal });
        this.noteProgress(judges);
      }
      announce(`${counted(lines.length, "query")} added`);
    } catch (error) {
      if (!isAbort(error)) await tell("The file was not added", error);
    }
  }

  async remove() {
    const content = h("p", {}, "This deletes the queries with the grades of all judges. Export them first if you need them. It cannot be undone.");
    if (!(await ask("Delete this judging?", content, { accept: "Delete", isDangerous: true }))) return;
    try {
      await call(this.path(), { method: "DELETE" });
      this.deleted();
    } catch (error) {
      await tell("Not deleted", error);
    }
  }
}

function readLine(line, index) {
  try {
    const { id, query, relevant, judge } = JSON.parse(line);
    return { id: String(id), relevant, ...(query !== undefined && { query }), ...(judge && { judge }) };
  } catch {
    throw new Error(`Line ${index + 1} is no JSON; take a file of toolscout eval judge.`);
  }
}

const kappaOf = (kappa) => (kappa === null ? "–" : kappa.toFixed(3));

function agreementOf(found, judge, other) {
  if (found.pairs === 0) return h("p", { class: "muted" }, "They have graded no tool for the same query yet.");
  const row = (name, share, kappa) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "right" }, `${points(share)}%`), h("td", { class: "right" }, kappaOf(kappa)));
  const table = h("table", { class: "figures times" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Agreement"), h("th", { scope: "col", class: "right" }, "the same"), h("th", { scope: "col", class: "right" }, "kappa"))),
    h("tbody", {}, row("Grades", found.same_grade, found.kappa), row("Relevant or not", found.same_relevance, found.kappa_relevance)));
  const pairs = found.disagreements.map(({ query, tool, a, b }) => h("li", {}, foreign(oneLine(judge, 40)), ` ${a}, `, foreign(oneLine(other, 40)), ` ${b}: `, h("code", {}, foreign(oneLine(tool, 120))), " for ", foreign(oneLine(query, 160))));
  return [h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Agreement" }, table),
    h("p", { class: "muted small" }, `Over ${counted(found.pairs, "grade")} of ${counted(found.queries, "query")} that both have given; ${count(found.left_out)} that only one has. Kappa is 1 for full agreement, and 0 for chance.`),
    pairs.length > 0 && h("details", {}, h("summary", {}, "Where they differ most"), h("ul", { class: "plain" }, pairs))];
}
