/** A plan as a graph: its steps in layers, lines from the steps that others use, and how far it is. */

import { h, replace, svg } from "./dom.js";
import { counted, foreign, oneLine } from "./text.js";

const WIDTH = 190;
const HEIGHT = 64;
const GAP_X = 84;
const GAP_Y = 14;
const STATES = { waits: "waits", runs: "running", asks: "waits for you", ok: "done", error: "failed", skipped: "skipped", ended: "cut off" };
const MOST_PROBLEMS = 40;
/** Lines to one step that have room for their labels. */
const MOST_LABELS = 3;

export class Plan {
  /** @param {{steps: object[], problems?: string[]}} event */
  constructor({ steps, problems = [] }) {
    this.steps = steps;
    this.isRefused = problems.length > 0;
    this.nodes = new Map(steps.map((step) => [step.step, node(step)]));
    this.summary = h("span", { class: "muted" });
    this.element = h("article", { class: "plan", "aria-label": "Plan" },
      h("header", { class: "head" }, h("h3", {}, "Plan"), this.summary),
      this.isRefused && h("div", { class: "notice warn" }, h("b", {}, "Not carried out."), h("ul", {}, problems.slice(0, MOST_PROBLEMS).map((problem) => h("li", {}, foreign(oneLine(problem, 400)))))),
      steps.length > 0 && this.graph());
    this.count();
  }

  graph() {
    const places = layout(this.steps);
    const [columns, rows] = [0, 1].map((axis) => Math.max(...[...places.values()].map((place) => place[axis])) + 1);
    const [width, height] = [columns * (WIDTH + GAP_X) - GAP_X, rows * (HEIGHT + GAP_Y) - GAP_Y];
    const lines = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const step of this.steps) {
      const needs = (step.needs ?? []).filter((need) => places.has(need));
      needs.forEach((need, index) => lines.append(...edge(places.get(need), places.get(step.step), (index + 1) / (needs.length + 1), needs.length > MOST_LABELS ? "" : labelOf(step, need))));
    }
    for (const [key, [column, row]] of places) {
      const { style } = this.nodes.get(key).box;
      style.left = `${column * (WIDTH + GAP_X)}px`;
      style.top = `${row * (HEIGHT + GAP_Y)}px`;
    }
    const list = h("ol", { class: "graph-nodes" }, [...this.nodes.values()].map(({ box }) => box));
    const space = h("div", { class: "graph-space" }, lines, list);
    space.style.width = `${width}px`;
    space.style.height = `${height}px`;
    return h("div", { class: "graph", tabindex: 0, role: "group", "aria-label": counted(this.steps.length, "step") }, space);
  }

  /** The step that this call carries out: the one that its id names, else the next one. */
  stepOf(id) {
    if (this.isRefused) return null;
    const waiting = this.steps.filter((step) => this.nodes.get(step.step).state === "waits");
    const step = waiting.find((each) => id === `step_${each.step}`) ?? waiting[0];
    return step?.step ?? null;
  }

  setState(key, state) {
    const known = this.nodes.get(key);
    if (!known) return;
    known.state = state;
    known.box.dataset.state = state;
    known.said.textContent = STATES[state] ?? state;
    this.count();
  }

  /** Takes the results of all steps. */
  finish(results) {
    for (const [key, result] of Object.entries(results)) {
      this.setState(key, result.status === "ok" ? "ok" : result.error_code === "skipped" ? "skipped" : "error");
    }
  }

  end() {
    for (const [key, { state }] of this.nodes) if (state === "runs" || state === "asks") this.setState(key, "ended");
  }

  count() {
    const done = [...this.nodes.values()].filter(({ state }) => state === "ok").length;
    replace(this.summary, this.isRefused ? counted(this.steps.length, "step") : `${done} of ${counted(this.steps.length, "step")} done`);
  }
}

function node(step) {
  const said = h("span", { class: "call-state" }, STATES.waits);
  const needs = (step.needs ?? []).length > 0 && h("span", { class: "sr" }, ` needs ${step.needs.join(", ")}`);
  const kind = step.problem ?? [step.class, step.decision].filter(Boolean).join(", ").replaceAll("_", " ");
  const box = h("li", { class: "node", "data-state": "waits", title: oneLine(JSON.stringify(step.arguments) ?? "", 600) },
    h("div", { class: "node-head" }, h("b", {}, foreign(oneLine(step.step, 20))), said),
    h("div", { class: "name" }, foreign(oneLine(step.tool, 80))),
    h("div", { class: step.problem ? "warn-text" : "muted" }, foreign(oneLine(kind, 120))), needs);
  return { box, said, state: "waits" };
}

/** Column and row of each step: it stands right of all that it needs. */
function layout(steps) {
  const columns = new Map();
  for (const step of steps) {
    // Only steps before it count: a plan with problems may go in circles.
    const before = (step.needs ?? []).filter((need) => columns.has(need)).map((need) => columns.get(need) + 1);
    columns.set(step.step, Math.max(0, ...before));
  }
  const rows = new Map();
  const places = new Map();
  for (const [key, column] of columns) {
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    places.set(key, [column, row]);
  }
  return places;
}

/** A line from a step to one that needs it, which it meets at this share of its height. */
function edge([fromColumn, fromRow], [toColumn, toRow], at, label) {
  const [x1, y1] = [fromColumn * (WIDTH + GAP_X) + WIDTH, fromRow * (HEIGHT + GAP_Y) + HEIGHT / 2];
  const [x2, y2] = [toColumn * (WIDTH + GAP_X), toRow * (HEIGHT + GAP_Y) + HEIGHT * at];
  const bend = Math.max(GAP_X / 2, (x2 - x1) / 2);
  const line = svg("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
  if (label === "") return [line];
  // Near the step that uses it, where lines from one step have parted.
  return [line, svg("text", { class: "edge-label", x: x2 - 6, y: y2 - 5, "text-anchor": "end" }, label)];
}

/** What a step takes from another one: `.order.id` of `${1.order.id}`. */
function labelOf(step, need) {
  const texts = JSON.stringify(step.arguments) ?? "";
  const at = texts.indexOf(`\${${need}.`);
  if (at < 0) return "";
  const path = texts.slice(at + need.length + 2).split("}", 1)[0];
  return oneLine(path, 11);
}
