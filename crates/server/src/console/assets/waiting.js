/** Calls that wait for a person, on every screen: in the navigation, in the title, and in a line above the screen. */

import { call } from "./api.js";
import { announce, h, replace } from "./dom.js";
import { address } from "./place.js";
import { counted, foreign, oneLine } from "./text.js";

const LOOK_MS = 5000;

/** The calls that wait, the one whose time ends first leading. */
let waiting = [];
let known = new Set();
let timer = 0;
/** Counts the looks, so that an earlier answer neither replaces a later one nor goes on beside it. */
let looks = 0;
let changed = () => {};

/** Looks for waiting calls from now on. `onChange` draws what shows their number. */
export function watchWaiting(onChange) {
  changed = onChange;
  lookNow();
}

/** How many calls wait. */
export const waitingCalls = () => waiting.length;

/** Looks now, for example after a decision. */
export function lookNow() {
  clearTimeout(timer);
  look();
}

async function look() {
  looks += 1;
  const mine = looks;
  // Without a key, or while the server is away, the screens say what is wrong.
  const answer = await call("v1/approvals", { inBackground: true }).catch(() => null);
  if (mine !== looks) return;
  waiting = answer?.approvals ?? [];
  notify(waiting.filter(({ id }) => !known.has(id)));
  known = new Set(waiting.map(({ id }) => id));
  changed();
  timer = setTimeout(look, LOOK_MS);
}

function notify(calls) {
  if (calls.length === 0) return;
  announce(`${oneLine(calls[0].tool, 80)} waits for approval`);
  if (!document.hidden || !mayNotify()) return;
  const body = calls.map(({ tool }) => oneLine(tool, 80)).slice(0, 5).join(", ");
  const notification = new Notification(`${counted(calls.length, "call")} waiting for approval`, { body, tag: "toolscout-approvals" });
  notification.onclick = () => {
    focus();
    location.hash = address("operations", { view: "approvals" });
  };
}

const mayNotify = () => "Notification" in window && Notification.permission === "granted";

/** A button that asks the browser for notifications; nothing if they are on, blocked or unknown to it. */
export function notifyButton() {
  if (!("Notification" in window) || Notification.permission !== "default") return null;
  const button = h("button", { type: "button", onclick: async () => {
    await Notification.requestPermission();
    button.remove();
  } }, "Notify me when a call waits");
  return button;
}

/** How long a call still waits, such as `2:05`. */
export function timeLeft(ms) {
  const seconds = Math.max(Math.ceil(ms / 1000), 0);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** The line above a screen; nothing on the screen that lists the calls. */
export function drawWaiting(box, isListed) {
  const shown = isListed ? [] : waiting;
  box.hidden = shown.length === 0;
  const ids = shown.map(({ id }) => id).join(" ");
  // The link keeps the focus while the same calls wait.
  if (box.dataset.calls !== ids) replace(box, shown.length > 0 && line(shown));
  box.dataset.calls = ids;
  const left = box.querySelector(".number");
  if (left) left.textContent = timeLeft(shown[0].expires_in_ms);
}

function line([first, ...others]) {
  const count = others.length + 1;
  return h("p", { class: "notice warn" },
    h("b", {}, `${counted(count, "call")} ${count === 1 ? "waits" : "wait"} for a person: `),
    h("span", { class: "mono" }, foreign(oneLine(first.tool, 80))), count > 1 && ` and ${count - 1} more`,
    ", ", h("span", { class: "number" }, timeLeft(first.expires_in_ms)), " left. ",
    h("a", { href: address("operations", { view: "approvals" }) }, "Decide"));
}
