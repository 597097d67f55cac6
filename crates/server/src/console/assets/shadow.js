/** What switching to the shadow of a catalog would change. */

import { h } from "./dom.js";
import { card, duration, table, took } from "./panels.js";
import { count, counted, foreign } from "./text.js";

const STATES = {
  waiting: "It waits until the catalog is open.",
  making: "Its copy of the catalog is being made; searches are compared once it is ready.",
  failed: "Its copy of the catalog could not be made; this is tried again.",
};
const CLASSES = { gains: "good", loses: "bad" };
const DAYS = 14;

/** The card of a report, as `GET …/usage/shadow` answers it. */
export function shadowCard(report) {
  const { now, verdict, summary, days } = report;
  return card("Shadow: what a switch would change",
    h("p", { class: "muted" }, "Second answers to ", h("b", {}, percent(report.share)), " of the searches, with ", report.differences.map((name, index) => [index > 0 && ", ", foreign(name)]), "."),
    now.state !== "ready" && h("p", { class: now.state === "failed" ? "notice warn" : "notice" }, STATES[now.state] ?? now.state, now.problem && [" ", foreign(now.problem)]),
    h("p", { class: "verdict" }, h("b", { class: CLASSES[verdict] ?? null }, foreign(sentence(summary)))),
    table("Figures of the shadow", ["Figure", "Live", "Shadow", "Gain"], figures(report)),
    h("p", { class: "note" }, `After ± is half of a 95% interval. ${counted(report.searches, "search")} compared, ${counted(report.calls, "call")} of tools that they had shown; ${count(report.absent)} of these tools are not in the shadow's answer.`),
    h("p", { class: "note" }, `Since the start of the server: ${time(now.cpu_ms)} of CPU time, ${counted(now.waiting, "search")} waiting, ${count(now.dropped)} skipped.`),
    days.length > 0 && table("The shadow by day", ["Day", "Searches", "Calls", "First, live", "First, shadow"], days.slice(0, DAYS).map((day) => [day.day, count(day.searches), count(day.calls), count(day.live_first), count(day.shadow_first)])),
    days.length > DAYS && h("p", { class: "muted" }, `The last ${DAYS} of ${counted(days.length, "day")}.`));
}

function figures({ first_place: first, reciprocal_place: place, overlap_at_5: overlap, same_first_hit: same }) {
  return [
    compared("Called tool is the first hit", first),
    compared("1 / place of the called tool", place),
    ["First five hits in common", "", overlap === null ? "–" : estimate(overlap), ""],
    ["Same first hit", "", same === null ? "–" : number(same), ""],
  ];
}

function compared(name, figure) {
  if (figure === null) return [name, "–", "–", "–"];
  const { live, shadow, gain } = figure;
  return [name, number(live), number(shadow), `${gain.mean > 0 ? "+" : ""}${estimate(gain)}`];
}

const number = (value) => value.toFixed(3);
const estimate = ({ mean, plus_minus: half }) => `${number(mean)} ± ${number(half)}`;
const percent = (share) => `${Number((100 * share).toFixed(2))}%`;
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
const time = (ms) => (ms < 60_000 ? took(ms) : duration(ms / 1000));
