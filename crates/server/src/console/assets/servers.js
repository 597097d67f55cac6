/** How the servers of a catalog are connected. */

import { h } from "./dom.js";
import { foreign } from "./text.js";

const STATES = { connected: "connected", connecting: "connecting", reconnecting: "reconnecting", needs_login: "needs a login", idle: "stopped until it is called" };
/** The states of a server whose tools cannot be called. */
const AWAY = ["reconnecting", "needs_login"];

/** A point in the colour of the state, with the state for readers of screens. */
export function statePoint(server) {
  const state = server?.connection?.state;
  if (!state) return null;
  return [h("span", { class: "point", "data-state": state, title: STATES[state], "aria-hidden": "true" }), h("span", { class: "sr" }, `${STATES[state]} `)];
}

/** What is known of the connection of a server, and of those that are not connected of all. */
export function connectionNotice(servers, name) {
  if (name === "") {
    const away = servers.filter(({ connection }) => AWAY.includes(connection?.state));
    return away.slice(0, 5).map((server) => notice(server, true));
  }
  const server = servers.find((other) => other.name === name);
  return server ? notice(server, false) : null;
}

function notice({ name, connection }, isNamed) {
  if (!connection) return h("p", { class: "muted" }, "Its tools were added; this server is not connected, so they can be found and not called over MCP.");
  const { state, since_ms: since, reason, synced_ms: synced } = connection;
  if (state === "connected") return h("p", { class: "muted connection" }, "Connected since ", time(since), synced && [". Its tools were last taken in ", time(synced)], ".");
  const isAway = AWAY.includes(state);
  return h("p", { class: isAway ? "notice warn" : "muted connection", role: "status" },
    h("b", {}, isNamed && [foreign(name), " is not connected"], !isNamed && (isAway ? "Not connected" : "Connecting")), " since ", time(since), isAway && ", and tried again and again: ", isAway && foreign(reason ?? ""));
}

/** A time of today, or a day with its time. */
export function time(ms) {
  const at = new Date(ms);
  const isToday = at.toDateString() === new Date().toDateString();
  const text = isToday ? at.toLocaleTimeString("en-GB") : at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  return h("time", { datetime: at.toISOString() }, text);
}
