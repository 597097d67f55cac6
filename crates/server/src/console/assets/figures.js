/** The figures of the server, read every few seconds, with the course of the last minutes. */

import { call, isAbort } from "./api.js";
import { chart } from "./chart.js";
import { bar, h, replace, skeleton, svg } from "./dom.js";
import { card, duration, moment, notShown, table } from "./panels.js";
import { bytes, count, counted, foreign, milliseconds } from "./text.js";

const EVERY_MS = 3000;
/** How much of the past is kept, and drawn. */
const PAST_MS = 5 * 60_000;
/** The time over which a rate or a percentile of now is taken. */
const NOW_MS = 60_000;
/** Samples further apart are not joined by a line: nobody looked in between. */
const GAP_MS = 4 * EVERY_MS;
const ROUTES = 10;
/** What is kept over restarts: the caption of each length of time. */
const STEPS = { minute: "3 hours, by minute", hour: "14 days, by hour", day: "400 days, by day" };
/** How often that is read: less often than the figures of now. */
const HISTORY_MS = 30_000;

const QUEUES = {
  requests: "Requests", connections: "Connections", searches: "Searches", writes: "Writes to catalogs", tasks: "Tasks",
  loads: "Streamed loads", agent_runs: "Runs of the agent", embeddings: "Tools to embed",
};
const STAGES = { embed: "embed the request", lexical: "words", dense: "embeddings", fuse: "combine", rank: "rank" };
const DEGRADED = {
  no_embedder: "the catalog has no embedder", embedder_not_loaded: "an embedder could not be loaded", embedder_failed: "an embedder failed",
  not_embedded: "no tool was embedded yet", partly_embedded: "some tools were not embedded yet", damaged_vectors: "stored vectors are damaged",
  ranker: "the ranker could not be used", memory: "the memory could not be used", budget_exceeded: "the time budget left something out",
};
const REFUSED = { search_queue: "searches: the queue was full", timeout: "requests that took too long", address: "connections of one address" };
const SAVERS = { search: "Searches in a model's format", mcp: "Searches over MCP", agent: "Turns of the agent" };

/** What was read, with its time; kept while another screen is shown. */
let past = [];

export function figures(root) {
  const view = new Figures(root);
  view.start();
  return view;
}

class Figures {
  constructor(root) {
    Object.assign(this, { root, isPaused: false, isWhole: false, step: "hour", historyAt: 0, aborter: new AbortController() });
    this.onVisible = () => { if (document.visibilityState === "visible") this.read(); };
  }

  start() {
    replace(this.root, skeleton(4, "tall"));
    document.addEventListener("visibilitychange", this.onVisible);
    this.read();
  }

  stop() {
    this.aborter.abort();
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  /** Is called when the server is back. */
  again() {
    this.read();
  }

  async read() {
    clearTimeout(this.timer);
    try {
      const stats = await call("v1/stats", { signal: this.aborter.signal });
      this.keep(stats);
      this.draw(stats);
      if (Date.now() - this.historyAt > HISTORY_MS) await this.readHistory();
      if (!this.isPaused && document.visibilityState === "visible") this.timer = setTimeout(() => this.read(), EVERY_MS);
    } catch (error) {
      // A server that does not answer is said above, and `again` is called when it does.
      if (isAbort(error) || (error.status === 0 && this.boxes)) return;
      this.boxes = null;
      replace(this.root, notShown(error, () => this.start()));
    }
  }

  /** Keeps a sample. After a restart the server counts anew, and so does the page. */
  keep(stats) {
    const at = Date.now();
    if (past.at(-1)?.stats.started_at_ms !== stats.started_at_ms) past = [];
    past = past.filter((sample) => at - sample.at <= PAST_MS);
    past.push({ at, stats });
  }

  draw(stats) {
    if (!this.boxes) this.frame();
    // What is selected, to be copied, stays as it is.
    const selection = getSelection();
    if (!selection.isCollapsed && this.root.contains(selection.anchorNode)) return;
    replace(this.boxes.tiles, tiles(stats));
    replace(this.boxes.latency, latencies(stats));
    replace(this.boxes.queues, queues(stats));
    replace(this.boxes.lacks, lacks(stats));
    replace(this.boxes.tokens, tokens(stats.tokens));
    replace(this.boxes.routes, routes(stats.requests.routes, this.isWhole));
    this.allRoutes.hidden = this.isWhole || stats.requests.routes.length <= ROUTES;
    replace(this.boxes.process, `Version ${stats.version}, started `, moment(stats.started_at_ms), `, running for ${duration(stats.uptime_s)}. ${counted(stats.catalogs.open, "catalog")} of at most ${count(stats.catalogs.open_limit)} open, with ${counted(stats.catalogs.tools, "tool")}.`);
  }

  async readHistory() {
    this.historyAt = Date.now();
    const { step } = this;
    const history = await call(`v1/stats/history?step=${step}`, { signal: this.aborter.signal });
    if (step !== this.step || this.boxes.history.matches(":hover")) return;
    replace(this.boxes.history, historyCharts(history));
  }

  frame() {
    const box = () => h("div", {});
    const steps = Object.entries(STEPS).map(([value, caption]) => h("option", { value, selected: value === this.step }, caption));
    const choose = h("select", { "aria-label": "Time", onchange: (event) => {
      this.step = event.target.value;
      this.historyAt = 0;
      this.read();
    } }, steps);
    this.boxes = { tiles: h("div", { class: "gauges" }), latency: box(), queues: box(), lacks: box(), tokens: box(), routes: box(), history: h("div", { class: "charts" }), process: h("p", { class: "muted" }) };
    this.pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.togglePause() }, "Pause");
    this.allRoutes = h("button", { type: "button", class: "link", onclick: () => this.showAllRoutes() }, "All routes");
    const { tiles: gauges, process, history, ...boxes } = this.boxes;
    replace(this.root,
      h("div", { class: "operations-head" }, process, this.pause),
      gauges,
      h("div", { class: "filter" }, h("h2", {}, "Over time"), choose, h("span", { class: "muted" }, "The server keeps these figures. Times when it did not run are empty.")), history,
      h("div", { class: "figure-cards" },
        h("div", {}, card("Latency since the start", boxes.latency), card("Tokens saved", boxes.tokens)),
        h("div", {}, card("Queues and limits", boxes.queues), card("Degraded and refused", boxes.lacks))),
      card("Requests by route", boxes.routes, this.allRoutes));
  }

  togglePause() {
    this.isPaused = !this.isPaused;
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
    if (!this.isPaused) this.read();
    else clearTimeout(this.timer);
  }

  showAllRoutes() {
    this.isWhole = true;
    this.draw(past.at(-1).stats);
    this.boxes.routes.querySelector(".scroll").focus();
  }
}

function historyCharts(history) {
  const show = (title, read, said) => chart(title, history, history.most_periods, read, said);
  return [
    show("Searches", ({ searches }) => searches),
    show("Search time, 95%", ({ p95_ms: ms }) => ms, milliseconds),
    show("Searches without a match", ({ no_match: none }) => none),
    show("Tokens saved", ({ saved_tokens: saved }) => saved),
    show("Errors of the server (5xx)", ({ errors }) => errors),
    show("Memory", ({ memory_bytes: memory }) => memory, bytes),
  ];
}

/** Figures of now, each with its course. */
function tiles(stats) {
  const searches = past.map((sample) => [sample.at, since(sample, (s) => s.searches.total, perSecond)]);
  const requests = past.map((sample) => [sample.at, since(sample, (s) => s.requests.total, perSecond)]);
  const slow = past.map((sample) => [sample.at, recentPercentile(sample, (s) => s.searches.buckets, 0.95)]);
  const degraded = past.map((sample) => [sample.at, since(sample, (s) => sum(s.searches.degraded), share(sample, (s) => s.searches.total))]);
  const memory = past.map((sample) => [sample.at, sample.stats.memory_bytes]);
  const waiting = past.map((sample) => [sample.at, queue(sample.stats, "searches").waiting]);
  return [
    gauge("Searches", rate(searches.at(-1)[1]), "a second", searches),
    gauge("Requests", rate(requests.at(-1)[1]), "a second", requests),
    gauge("Search time, 95%", slow.at(-1)[1] === null ? "–" : milliseconds(slow.at(-1)[1]), "in the last minute", slow),
    gauge("Degraded searches", degraded.at(-1)[1] === null ? "–" : `${(100 * degraded.at(-1)[1]).toFixed(0)}%`, "in the last minute", degraded),
    gauge("Waiting searches", count(waiting.at(-1)[1]), `${count(queue(stats, "searches").running)} running`, waiting),
    gauge("Memory", stats.memory_bytes === null ? "–" : bytes(stats.memory_bytes), "of the process", memory),
  ];
}

const queue = (stats, name) => stats.queues.find((one) => one.name === name);
const sum = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);
const rate = (value) => (value === null ? "–" : value >= 100 ? count(Math.round(value)) : value.toFixed(1));

/** The sample before this one by about a minute, or the oldest one. */
function before(sample) {
  return past.find(({ at }) => sample.at - at <= NOW_MS);
}

/** What a count of this sample is compared with: the one about a minute before. Null for the first sample. */
function since(sample, read, compare) {
  const earlier = before(sample);
  if (earlier === sample) return null;
  return compare(read(sample.stats) - read(earlier.stats), (sample.at - earlier.at) / 1000);
}

const perSecond = (difference, seconds) => difference / seconds;

/** Compares with the change of another count. */
const share = (sample, read) => (difference) => {
  const all = since(sample, read, (number) => number);
  return all > 0 ? difference / all : null;
};

/** A percentile of what came within about a minute, estimated as the server does. */
function recentPercentile(sample, read, wantedShare) {
  const earlier = before(sample);
  if (earlier === sample) return null;
  const old = read(earlier.stats);
  const counts = read(sample.stats).map(({ count: number }, index) => number - old[index].count);
  const wanted = wantedShare * counts.reduce((all, one) => all + one, 0);
  if (wanted === 0) return null;
  let below = 0;
  for (const [index, number] of counts.entries()) {
    if (number > 0 && below + number >= wanted) {
      const lower = index === 0 ? 0 : old[index - 1].up_to_ms;
      return lower + ((old[index].up_to_ms ?? lower) - lower) * ((wanted - below) / number);
    }
    below += number;
  }
  return null;
}

function gauge(name, value, unit, points) {
  return h("div", { class: "gauge" },
    h("div", { class: "gauge-name" }, name),
    h("div", { class: "gauge-value number" }, value),
    h("div", { class: "muted" }, unit),
    sparkline(points));
}

/** The course of a value; the numbers beside it say where it is now. */
function sparkline(points) {
  const [width, height] = [200, 34];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" });
  const known = points.filter(([, value]) => value !== null);
  if (known.length < 2) return drawing;
  const now = points.at(-1)[0];
  const top = Math.max(...known.map(([, value]) => value)) || 1;
  const span = Math.max(now - points[0][0], NOW_MS);
  const place = ([at, value]) => [width * (1 - (now - at) / span), height - 2 - (height - 6) * (value / top)].map((number) => number.toFixed(1)).join(" ");
  let line = "";
  known.forEach((point, index) => {
    const isApart = index === 0 || point[0] - known[index - 1][0] > GAP_MS;
    line += `${isApart ? "M" : "L"}${place(point)}`;
  });
  drawing.append(svg("path", { d: line }));
  return drawing;
}

function latencies({ requests, searches }) {
  const row = (name, { count: number, mean_ms: mean, p50_ms: p50, p95_ms: p95, p99_ms: p99 }) => [name, count(number), ...[mean, p50, p95, p99].map(time)];
  const rows = [row("Searches", searches.latency), ...searches.stages.map(({ stage, latency }) => row(h("span", { class: "stage-name" }, STAGES[stage] ?? stage), latency)), row("All requests", requests.latency)];
  const modes = Object.entries(searches.by_mode).map(([mode, number]) => `${mode} ${count(number)}`);
  return [
    table("Latency", ["", "count", "mean", "50%", "95%", "99%"], rows),
    h("p", { class: "note" }, "Half, 95 and 99 of 100 took no longer. Percentiles are estimated within the buckets of a histogram; above 10 s they say 10 s.", modes.length > 0 && ` Searches by mode: ${modes.join(", ")}.`),
  ];
}

const time = (ms) => (ms === null ? "–" : milliseconds(ms));

function queues({ queues: all }) {
  const rows = all.map(({ name, running, running_limit: runningLimit, waiting, waiting_limit: waitingLimit }) => [
    QUEUES[name] ?? name, filling(running, runningLimit), filling(waiting, waitingLimit),
  ]);
  return [table("Queues and limits", ["", "running", "waiting"], rows), h("p", { class: "note" }, "What is above a limit is refused, and the client is told to try again. The limit of waiting writes is that of one catalog.")];
}

function filling(number, limit) {
  if (number === null) return "";
  if (limit === null) return count(number);
  return h("div", { class: "filling" }, h("span", {}, count(number), h("span", { class: "muted" }, ` of ${count(limit)}`)), bar(number / limit));
}

function lacks({ searches, refused }) {
  const rows = [
    ...Object.entries(searches.degraded).map(([code, number]) => [foreign(`Degraded: ${DEGRADED[code] ?? code}`), count(number)]),
    ...Object.entries(refused).map(([code, number]) => [foreign(`Refused: ${REFUSED[code] ?? code}`), count(number)]),
    ["Searches without a match", count(searches.no_match)],
  ];
  const note = Object.keys(searches.degraded).length === 0 ? "No search was degraded since the start." : "A degraded search was answered without something that it asked for.";
  return [table("Degraded and refused", ["", "count"], rows), h("p", { class: "note" }, note)];
}

function tokens({ left_out: leftOut, ...sources }) {
  const rows = Object.entries(SAVERS).map(([name, title]) => {
    const { answers, catalog_tokens: all, answered_tokens: shown } = sources[name];
    return [title, count(answers), count(all - shown), all > 0 ? `${(100 * (1 - shown / all)).toFixed(1)}%` : "–"];
  });
  return [
    table("Tokens saved", ["", "answers", "tokens saved", "of all"], rows),
    h("p", { class: "note" }, "Saved is what the definitions of all tools of the catalog would have cost, less the definitions that were given: in each answer to a search, and in each round of a turn of the agent. In tokens of o200k; a catalog of more than 2,000 tools is estimated by a sample. Answers with names alone count nothing.", leftOut > 0 && ` ${counted(leftOut, "answer")} came too fast to be counted.`),
  ];
}

function routes(all, isWhole) {
  const rows = (isWhole ? all : all.slice(0, ROUTES)).map(({ method, route, total, by_class: classes, latency }) => [
    h("code", {}, `${method} `, foreign(route)), count(total), count(classes["4xx"] ?? 0), count(classes["5xx"] ?? 0), time(latency.p50_ms), time(latency.p95_ms), time(latency.p99_ms),
  ]);
  return table("Requests by route", ["", "answered", "4xx", "5xx", "50%", "95%", "99%"], rows);
}
