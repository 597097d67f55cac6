/** What happened period by period, as bars over time. */

import { h, svg } from "./dom.js";
import { count, foreign } from "./text.js";

const WIDTH = 600;
const HEIGHT = 90;

/** How the starts of periods are written, by the length of a period in seconds. */
const FORMATS = {
  60: { hour: "2-digit", minute: "2-digit" },
  3600: { month: "short", day: "numeric", hour: "numeric" },
  // Days are those of UTC.
  86400: { day: "numeric", month: "short", timeZone: "UTC" },
};

/**
 * Bars of one figure. The numbers are read out, and shown when one points at a bar.
 * @param {string} title
 * @param {{step_s: number, periods: {start_ms: number}[]}} history of the API
 * @param {number} shown how many periods, up to now
 * @param {(period: object) => ?number} read
 * @param {(value: number) => string} [said] a value in words
 */
export function chart(title, history, shown, read, said = count) {
  const { step_s: seconds, periods } = history;
  const step = seconds * 1000;
  const last = Math.floor(Date.now() / step) * step;
  const first = last - (shown - 1) * step;
  const format = new Intl.DateTimeFormat(undefined, FORMATS[seconds] ?? FORMATS[3600]);
  const values = [];
  for (const period of periods) {
    const value = period.start_ms >= first ? read(period) : null;
    if (value !== null) values.push([period.start_ms, value]);
  }
  const top = Math.max(...values.map(([, value]) => value), 0);
  const width = WIDTH / shown;
  const bars = values.map(([start, value]) => {
    const height = top === 0 ? 0 : Math.max((value / top) * HEIGHT, value > 0 ? 1.5 : 0);
    const place = { x: ((start - first) / step) * width + width * 0.1, y: HEIGHT - height, width: width * 0.8, height };
    // The whole height answers to the pointer, since low bars are hard to hit.
    const target = { x: ((start - first) / step) * width, y: 0, width, height: HEIGHT, class: "target" };
    return svg("g", {}, svg("title", {}, `${format.format(start)}: ${said(value)}`), svg("rect", target), svg("rect", place));
  });
  const most = values.find(([, value]) => value === top);
  const words = top === 0 ? `${title}: none` : `${title}: at most ${said(top)}, ${format.format(most[0])}`;
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("span", {}, title), h("span", { class: "muted number" }, top > 0 ? `at most ${said(top)}` : "none")),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words }, ...bars),
    h("div", { class: "chart-axis muted number", "aria-hidden": "true" }, [first, last].map((at) => h("span", {}, foreign(format.format(at))))));
}
