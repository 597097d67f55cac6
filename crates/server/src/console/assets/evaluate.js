/** Screen Evaluate: how well a catalog answers queries, and what has changed since they were last asked. */

import { call, isAbort, ofCatalog, pause, request } from "./api.js";
import { ask, tell } from "./dialog.js";
import { announce, h, icon, oneStop, replace, skeleton } from "./dom.js";
import { armName, changeSummary, figuresTable, latencyTable, points } from "./evaluate_figures.js";
import { EvaluationForm } from "./evaluate_form.js";
import { JudgeView, judgedOf } from "./evaluate_judge.js";
import { QueryTable, readQueries } from "./evaluate_queries.js";
import { address, go } from "./place.js";
import { saySettings, settingsOf } from "./settings.js";
import { count, counted, dates, foreign, oneLine } from "./text.js";

const ASK_EVERY_MS = 300;
const MOST_SETS = 200;

/** What is typed, and what runs, by catalog: another screen may be looked at meanwhile. */
const forms = new Map();
const running = new Map();

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[], name: string}} catalogs
 */
export function evaluate(root, params, catalogs) {
  const view = new EvaluateScreen(root, params, catalogs);
  view.start();
  return view;
}

/** Asks which set of a report is meant. */
async function chooseSet(sets) {
  const options = sets.slice(0, MOST_SETS).map(({ set }) => h("option", { value: String(set) }, oneLine(String(set), 80)));
  const content = h("div", { class: "field" }, h("label", { for: "set-of-report" }, "Set"), h("select", { id: "set-of-report", name: "set" }, options));
  const given = await ask("The report has several sets", content, { accept: "Send" });
  return given?.get("set") ?? null;
}

/** What an evaluation is called. */
const nameOf = ({ name, created_at_ms: at }) => (name ? foreign(oneLine(name, 80)) : dates.format(at));

class EvaluateScreen {
  constructor(root, params, { list, name, allowed }) {
    Object.assign(this, { root, list, name, isOwner: allowed.may("admin"), evaluations: [], judgings: [], servers: [] });
    this.read(params);
    this.aborter = new AbortController();
    this.shown = new AbortController();
  }

  read(params) {
    this.id = params.get("id") ?? "";
    this.judging = params.get("judge") ?? "";
    this.number = Number(params.get("n") ?? 0);
    this.against = params.get("against") ?? "";
    this.table = { sort: params.get("sort") ?? "", arm: params.get("arm") ?? "", changed: params.has("changed") };
  }

  place(changes = {}) {
    const { sort, arm, changed } = this.table;
    return { c: this.name, id: this.id, against: this.against, sort, arm, changed: changed ? "1" : "", ...changes };
  }

  start() {
    this.draw();
    this.load();
    this.loadServers();
    this.follow();
  }

  stop() {
    this.aborter.abort();
    this.shown.abort();
    this.root.classList.remove("wide");
  }

  /** Is called when the server is back. */
  again() {
    this.load();
    this.follow();
  }

  /** Goes to another place on this screen; false where it has to be drawn anew. */
  goTo(params) {
    if ((params.get("c") ?? this.name) !== this.name) return false;
    this.read(params);
    this.drawSide();
    this.show();
    return true;
  }

  draw() {
    this.root.classList.add("wide");
    this.names = h("ul", {});
    this.judged = h("ul", {});
    const catalogs = this.list.map(({ name, tools }) => [name, `${name} (${count(tools)})`]);
    if (!this.list.some(({ name }) => name === this.name)) catalogs.unshift([this.name, this.name]);
    const chooser = h("select", { "aria-label": "Catalog", onchange: (event) => go("evaluate", { c: event.target.value }) },
      catalogs.map(([value, caption]) => h("option", { value, selected: value === this.name }, caption)));
    this.side = h("aside", { class: "side-panel", "aria-label": "Evaluations" },
      h("div", { class: "side-chooser" }, chooser),
      this.isOwner && h("a", { class: "new", href: address("evaluate", { c: this.name }) }, icon("plus"), "New evaluation"),
      h("div", { class: "side-head" }, h("h2", {}, "Earlier ones")), this.names,
      h("div", { class: "side-head" }, h("h2", {}, "Judged by hand")), this.judged);
    this.progress = h("div", { class: "loads" });
    this.content = h("div", {});
    this.center = h("div", { class: "evaluate-center" }, this.progress, this.content);
    replace(this.root, h("div", { class: "evaluate" }, this.side, this.center));
    this.drawSide();
    this.show();
  }

  drawSide() {
    const items = this.evaluations.map((evaluation) => {
      const { id, arms, created_at_ms: at, main_metric: main } = evaluation;
      const figure = arms[0].figures.find(({ metric }) => metric === main);
      return h("li", {}, h("a", { href: address("evaluate", { c: this.name, id }), "aria-current": id === this.id && "true" },
        h("span", {}, nameOf(evaluation), (evaluation.name || evaluation.source === "sent") && h("small", { class: "muted" }, evaluation.source === "sent" && "sent, ", dates.format(at))),
        figure && h("span", { class: "number", title: main }, points(figure.mean))));
    });
    replace(this.names, items.length > 0 ? items : h("li", { class: "muted" }, "None are kept yet."));
    oneStop(this.names);
    const judgings = this.judgings.map((judging) => h("li", {}, h("a", { href: address("evaluate", { c: this.name, judge: judging.id }), "aria-current": judging.id === this.judging && "true" },
      h("span", {}, nameOf(judging), h("small", { class: "muted" }, judgedOf(judging))))));
    replace(this.judged, judgings.length > 0 ? judgings : h("li", { class: "muted" }, "None yet."));
    oneStop(this.judged);
  }

  async load() {
    try {
      const { evaluations } = await call(ofCatalog(this.name, "/evaluations"), { signal: this.aborter.signal });
      const { judgings } = await call(ofCatalog(this.name, "/judgings"), { signal: this.aborter.signal });
      this.evaluations = evaluations;
      this.judgings = judgings;
      this.drawSide();
      if (this.id && this.content.querySelector(".empty")) this.show();
    } catch (error) {
      if (!isAbort(error) && error.status !== 0) replace(this.names, h("li", { class: "notice error", role: "alert" }, foreign(error.message)));
    }
  }

  async loadServers() {
    try {
      const { servers } = await call(ofCatalog(this.name, "/stats"), { signal: this.aborter.signal });
      this.servers = servers.map(({ name }) => name).filter(Boolean);
      if (!this.id) this.form.setServers(this.servers);
    } catch {
      // Without the list of servers the rest still works.
    }
  }

  get form() {
    if (!forms.has(this.name)) forms.set(this.name, new EvaluationForm());
    return forms.get(this.name);
  }

  show() {
    this.shown.abort();
    this.shown = new AbortController();
    if (this.id) this.showResult();
    else if (this.judging) this.showJudging();
    else this.showForm();
  }

  showJudging() {
    const view = new JudgeView({
      catalog: this.name, id: this.judging, number: this.number, signal: this.shown.signal,
      moved: (number) => { this.number = number; history.replaceState(null, "", address("evaluate", { c: this.name, judge: this.judging, n: number })); },
      changed: (judging) => this.noteJudging(judging), deleted: () => { go("evaluate", { c: this.name }); this.load(); },
    });
    replace(this.content, view.element);
    view.load();
  }

  noteJudging(judging) {
    this.judgings = this.judgings.map((known) => (known.id === judging.id ? judging : known));
    this.drawSide();
  }

  /** Begins to judge these queries. */
  async begin(body) {
    try {
      const { id } = await call(ofCatalog(this.name, "/judgings"), { method: "POST", json: body });
      this.form.fail(null);
      go("evaluate", { c: this.name, judge: id });
      this.load();
    } catch (error) {
      this.form.fail(error);
    }
  }

  /** Sends a report of the command line or of another server. */
  async sendReport(file, { sets }) {
    const set = sets.length > 1 ? await chooseSet(sets) : "";
    if (set === null) return;
    try {
      const query = set ? `?${new URLSearchParams({ set })}` : "";
      const { id } = await call(ofCatalog(this.name, `/evaluations/reports${query}`), { method: "POST", body: file, type: "application/json" });
      this.form.fail(null);
      go("evaluate", { c: this.name, id });
      this.load();
    } catch (error) {
      this.form.fail(error);
    }
  }

  showForm() {
    if (!this.isOwner) return replace(this.content, h("div", { class: "empty" }, h("h2", {}, "Evaluations of this catalog"), h("p", { class: "muted" }, "Choose an earlier one to see its figures. This key may not start one: that needs the scope admin.")));
    this.form.submit = (body) => this.run(body);
    this.form.begin = (body) => this.begin(body);
    this.form.sendReport = (file, report) => this.sendReport(file, report);
    this.form.setServers(this.servers);
    this.form.setBusy(running.has(this.name));
    replace(this.content, this.form.element);
  }

  /** Starts an evaluation, and follows it. */
  async run(body) {
    this.form.setBusy(true);
    try {
      running.set(this.name, { task: await call(ofCatalog(this.name, "/evaluations"), { method: "POST", json: body }), name: body.name });
      this.form.fail(null);
    } catch (error) {
      this.form.fail(error);
      return;
    } finally {
      this.form.setBusy(running.has(this.name));
    }
    this.follow();
  }

  /** Shows how far the running evaluation is, to its end. */
  async follow() {
    const run = running.get(this.name);
    if (!run || this.isFollowing) return;
    this.isFollowing = true;
    const { signal } = this.aborter;
    try {
      while (run.task.status === "running") {
        this.showProgress(run);
        await pause(ASK_EVERY_MS, signal);
        run.task = await call(`v1/tasks/${encodeURIComponent(run.task.id)}`, { signal });
      }
      this.ended(run);
    } catch (error) {
      this.failed(error);
    } finally {
      this.isFollowing = false;
    }
  }

  failed(error) {
    // Another screen is shown, or the server is away: it is asked again when this one is.
    if (isAbort(error) || error.status === 0) return;
    running.delete(this.name);
    const reason = error.code === "unknown_task" ? "The server was started anew, and the evaluation was lost. Run it again." : error.message;
    this.notice("error", reason);
  }

  showProgress({ task, name }) {
    const stop = h("button", { type: "button", class: "link", onclick: () => this.cancel(task.id) }, "Cancel");
    const drawn = this.progress.querySelector("progress");
    if (drawn) {
      drawn.value = task.done;
      drawn.nextElementSibling.textContent = ` ${count(task.done)} of ${counted(task.total, "search")}`;
      return;
    }
    replace(this.progress, h("section", { class: "load", "aria-label": "Running evaluation" },
      h("b", {}, name ? foreign(oneLine(name, 80)) : "Evaluating"), h("div", {}, h("progress", { max: Math.max(task.total, 1), value: task.done, "aria-label": "Progress" }), h("span", { class: "muted" }), " ", stop)));
  }

  async cancel(id) {
    try {
      await call(`v1/tasks/${encodeURIComponent(id)}`, { method: "DELETE" });
    } catch (error) {
      this.notice("error", error.message);
    }
  }

  ended({ task }) {
    running.delete(this.name);
    replace(this.progress);
    this.form.setBusy(false);
    if (task.status === "succeeded") {
      announce("The evaluation has ended");
      go("evaluate", { c: this.name, id: task.evaluation });
      this.load();
    } else if (task.status === "cancelled") this.notice("warn", "Cancelled. Nothing of it is kept.");
    else this.notice("error", task.error?.message ?? "It failed.");
  }

  notice(kind, text) {
    this.form.setBusy(running.has(this.name));
    const close = h("button", { type: "button", class: "quiet close", "aria-label": "Put away", onclick: () => replace(this.progress) }, icon("cross"));
    replace(this.progress, h("div", { class: `load notice ${kind}`, role: "alert" }, close, foreign(text)));
  }

  async showResult() {
    const { signal } = this.shown;
    if (!this.content.querySelector(".evaluation")) replace(this.content, skeleton(5, "tall"));
    try {
      const query = this.against ? `?${new URLSearchParams({ against: this.against })}` : "";
      const body = await call(ofCatalog(this.name, `/evaluations/${encodeURIComponent(this.id)}${query}`), { signal });
      if (!signal.aborted) this.drawResult(body);
    } catch (error) {
      if (isAbort(error)) return;
      replace(this.content, h("div", { class: "empty", role: "alert" }, h("h1", {}, "This evaluation is not shown"), h("p", {}, foreign(error.message))));
    }
  }

  drawResult(body) {
    const { evaluation, against, b_against_a: arms } = body;
    const has = (number) => number > 0;
    const { total, judged, no_tool: none, unjudged } = evaluation.queries;
    const facts = [[total, "queries"], [judged, "judged"], [none, "that no tool fits"], [unjudged, "not judged"]].filter(([number], index) => index === 0 || has(number));
    // Two settings without an earlier time are compared with each other.
    this.table.sort ||= judged > 0 ? "loss" : "change";
    const isKnown = evaluation.arms.some(({ name }) => name === this.table.arm) || (this.table.arm === "b-a" && evaluation.arms.length > 1);
    if (!isKnown) this.table.arm = evaluation.arms.length > 1 && !against ? "b-a" : (against?.arms[0] ?? { arm: evaluation.arms[0].name }).arm;
    this.queryTable = new QueryTable({ catalog: this.name, evaluation, against: this.against, state: this.table, signal: this.shown.signal, changed: () => history.replaceState(null, "", address("evaluate", this.place())) });
    replace(this.content, h("article", { class: "evaluation" },
      h("div", { class: "catalog-head" }, h("h1", {}, nameOf(evaluation)), this.buttons(evaluation)),
      h("p", { class: "muted" }, evaluation.name && `${dates.format(evaluation.created_at_ms)} · `, `${counted(evaluation.tools, "tool")}, `, evaluation.sent ? ["a report of ", foreign(oneLine(evaluation.sent.set, 80)), ", sent by ", foreign(oneLine(evaluation.sent.by, 80))] : `generation ${evaluation.generation}`),
      this.warnings(body),
      h("dl", { class: "tiles" }, facts.map(([number, name]) => h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, count(number))))),
      !evaluation.sent && h("ul", { class: "plain arms" }, evaluation.arms.map(({ name, search }) => h("li", {}, evaluation.arms.length > 1 && h("span", { class: "side" }, name.toUpperCase()), " ", foreign(saySettings(settingsOf(search)))))),
      h("section", {}, h("div", { class: "catalog-head" }, h("h2", {}, "Figures"), this.chooser(evaluation, against)),
        changeSummary(evaluation, against, arms),
        figuresTable(evaluation, against, arms),
        latencyTable(evaluation)),
      h("section", {}, h("h2", {}, "Queries"), this.queryTable.element)));
    this.queryTable.load();
  }

  warnings({ evaluation, current_generation: now }) {
    const said = [];
    if (now !== evaluation.generation) said.push("The catalog was changed since.");
    said.push(...(evaluation.sent?.remarks ?? []));
    if (evaluation.changed_meanwhile) said.push("It was changed while this ran; all searches were of the state at the start.");
    if (evaluation.trained_on) said.push("The ranker was trained on these queries: the figures look better than on requests it has not seen.");
    if (evaluation.tuned_on) said.push("The catalog was tuned to these queries: the figures are in-sample and look better than on others.");
    if (evaluation.pending_embeddings > 0) said.push(`${counted(evaluation.pending_embeddings, "tool")} had no vectors yet.`);
    for (const { name, degraded } of evaluation.arms) if (degraded > 0) said.push(`${counted(degraded, "answer")} of ${armName(evaluation, name)} ${degraded === 1 ? "was" : "were"} degraded.`);
    return said.length > 0 && h("p", { class: "notice warn" }, foreign(said.join(" ")));
  }

  buttons(evaluation) {
    const isJudged = evaluation.queries.judged > 0;
    return h("div", { class: "actions" },
      isJudged && h("button", { type: "button", class: "quiet", title: "For eval --baseline, eval diff and eval report", onclick: () => this.save(evaluation, "json") }, "Report as JSON"),
      isJudged && h("button", { type: "button", class: "quiet", title: "A page with plots, as one file", onclick: () => this.save(evaluation, "html") }, "Report as page"),
      this.isOwner && h("button", { type: "button", onclick: () => this.runAgain(evaluation) }, evaluation.sent ? "Run here" : "Run again"),
      this.isOwner && h("button", { type: "button", class: "quiet", onclick: () => this.remove(evaluation) }, "Delete"));
  }

  /** What to compare with. */
  chooser(evaluation, against) {
    const others = this.evaluations.filter(({ id }) => id !== evaluation.id);
    const options = [["", "the last one over these queries"], ["none", "nothing"], ...others.map((other) => [other.id, `${other.name ? `${oneLine(other.name, 40)}, ` : ""}${dates.format(other.created_at_ms)}`])];
    if (this.against && !options.some(([id]) => id === this.against)) options.push([this.against, against ? dates.format(against.evaluation.created_at_ms) : this.against]);
    return h("label", { class: "compare-with" }, h("span", { class: "muted" }, "Compare with "),
      h("select", { onchange: (event) => go("evaluate", this.place({ against: event.target.value })) }, options.map(([value, caption]) => h("option", { value, selected: value === this.against }, caption))));
  }

  /** Saves the report, which the command line writes and reads too. */
  async save({ id }, format) {
    try {
      const path = ofCatalog(this.name, `/evaluations/${encodeURIComponent(id)}/report?format=${format}`);
      const response = await request(path, { accept: "*/*", signal: this.shown.signal });
      const content = URL.createObjectURL(await response.blob());
      h("a", { href: content, download: `evaluation-${id}.${format}` }).click();
      setTimeout(() => URL.revokeObjectURL(content), ASK_EVERY_MS);
    } catch (error) {
      if (!isAbort(error)) await tell("The report was not saved", error);
    }
  }

  /** Puts the same queries and settings into the form. */
  async runAgain(evaluation) {
    try {
      const queries = await readQueries(this.name, evaluation.id, this.shown.signal);
      this.form.fill(evaluation, queries);
      go("evaluate", { c: this.name });
    } catch (error) {
      if (!isAbort(error)) await tell("The queries were not read", error);
    }
  }

  async remove(evaluation) {
    const content = h("p", {}, "This deletes ", h("b", {}, nameOf(evaluation)), " with its figures and queries. It cannot be undone.");
    if (!(await ask("Delete this evaluation?", content, { accept: "Delete", isDangerous: true }))) return;
    try {
      await call(ofCatalog(this.name, `/evaluations/${encodeURIComponent(evaluation.id)}`), { method: "DELETE" });
      go("evaluate", { c: this.name });
      this.load();
    } catch (error) {
      await tell("Not deleted", error);
    }
  }
}
