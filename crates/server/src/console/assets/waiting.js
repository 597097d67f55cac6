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
let changed = () => {};

/** Looks for waiting calls from now on. `onChange` draws what shows their number. */
export function watchWaiting(onChange) {
  changed = onChange;
  look();
}

/** How many calls wait. */
export const waitingCalls = () => waiting.length;

/** Looks now, for example after a decision. */
export function lookNow() {
  clearTimeout(timer);
  look();
}

async function look() {
  try {
    waiting = (await call("v1/approvals", { inBackground: true })).approvals;
    notify(waiting.filter(({ id }) => !known.has(id)));
    known = new Set(waiting.map(({ id }) => id));
  } catch {
    // Without a key, or while the server is away, the screens say what is wrong.
    waiting = [];
  }
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
  if (waiting.length === 0 || isListed) return replace(box);
  const [first] = waiting;
  const more = waiting.length - 1;
  return replace(box, h("p", { class: "notice warn" },
    h("b", {}, `${counted(waiting.length, "call")} ${more === 0 ? "waits" : "wait"} for a person: `),
    h("span", { class: "mono" }, foreign(oneLine(first.tool, 80))), more > 0 && ` and ${more} more`,
    ", ", h("span", { class: "number" }, timeLeft(first.expires_in_ms)), " left. ",
    h("a", { href: address("operations", { view: "approvals" }) }, "Decide")));
}
