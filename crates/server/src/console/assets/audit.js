/** The audit log: calls of tools and decisions about changed ones, newest first, and whether it is unchanged. */

import { call, isAbort, pause } from "./api.js";
import { copyButton, debounce, h, replace, skeleton } from "./dom.js";
import { CLASSES, DECISIONS } from "./gate.js";
import { moment, notShown, took } from "./panels.js";
import { note } from "./place.js";
import { count, counted, foreign, long } from "./text.js";

const PAGE = 100;
const DEBOUNCE_MS = 250;
const PROGRESS_MS = 1000;
const DECISION_CHOICES = [["", "any decision"], ...Object.entries(DECISIONS)];
const PERIODS = [["", "any time"], ["1", "last hour"], ["24", "last day"], ["168", "last week"]];
const REVIEWED = { accept: "change accepted", block: "tool blocked" };

export function audit(root, params) {
  const view = new AuditView(root, params);
  view.start();
  return view;
}

class AuditView {
  constructor(root, params) {
    Object.assign(this, { root, aborter: new AbortController(), pageAborter: new AbortController() });
    this.filter = { name: params.get("name") ?? params.get("tool") ?? "", decision: params.get("decision") ?? "", hours: params.get("hours") ?? "" };
    this.refill = debounce(DEBOUNCE_MS, () => this.fill());
  }

  start() {
    this.state = h("div", { class: "check", role: "status" });
    this.verifying = h("button", { type: "button", onclick: () => this.verify() }, "Verify now");
    this.list = h("div", { class: "entries" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load() }, "Older entries");
    this.counted = h("span", { class: "muted", role: "status" });
    const tool = h("input", { type: "search", value: this.filter.name, placeholder: "part of server/tool", "aria-label": "Tool", maxlength: 256, autocomplete: "off", spellcheck: "false", oninput: (event) => this.change("name", event.target.value.trim()) });
    replace(this.root,
      h("section", { class: "card verification", "aria-label": "Verification" }, this.state, this.verifying),
      h("div", { class: "filter" }, tool, this.select("decision", "Decision", DECISION_CHOICES), this.select("hours", "Time", PERIODS), this.counted),
      this.list, this.more);
    this.fill();
    this.readCheck();
  }

  select(name, label, choices) {
    const options = choices.map(([value, title]) => h("option", { value, selected: value === this.filter[name] }, title));
    return h("select", { "aria-label": label, onchange: (event) => this.change(name, event.target.value) }, options);
  }

  change(name, value) {
    this.filter[name] = value;
    note("operations", { view: "audit", ...this.filter });
    this.refill();
  }

  stop() {
    this.aborter.abort();
    this.pageAborter.abort();
    this.refill.cancel();
  }

  /** Is called when the server is back. */
  again() {
    this.fill();
    this.readCheck();
  }

  fill() {
    this.pageAborter.abort();
    this.pageAborter = new AbortController();
    Object.assign(this, { cursor: null, ends: new Map(), shown: 0 });
    replace(this.list, skeleton(5, "short"));
    this.load();
  }

  /** Loads the next page. */
  async load() {
    const { signal } = this.pageAborter;
    const hours = Number(this.filter.hours);
    const query = new URLSearchParams({ limit: PAGE });
    if (this.cursor) query.set("cursor", this.cursor);
    for (const name of ["name", "decision"]) if (this.filter[name]) query.set(name, this.filter[name]);
    if (hours > 0) query.set("since_ms", Date.now() - hours * 3_600_000);
    this.more.disabled = true;
    try {
      const page = await call(`v1/audit?${query}`, { signal });
      if (!this.cursor) replace(this.list);
      this.show(page);
    } catch (error) {
      if (isAbort(error)) return;
      if (error.code === "wrong_scope") replace(this.root, notShown(error));
      else replace(this.list, notShown(error, () => this.fill()));
    }
    this.more.disabled = false;
  }

  show({ entries, total, next_cursor: cursor }) {
    for (const entry of entries) {
      // The end of a call is newer than its beginning, so it has been seen before.
      if (entry.event === "ended" && !this.filter.decision) this.ends.set(entry.begun, entry);
      else this.list.append(this.entry(entry));
    }
    this.shown = this.list.childElementCount;
    this.cursor = cursor ?? null;
    this.more.hidden = this.cursor === null;
    this.counted.textContent = `${counted(this.shown, "entry")} shown, ${total === 1 ? "1 entry" : `${count(total)} entries`} in the log`;
    if (this.shown === 0 && this.cursor === null) replace(this.list, h("p", { class: "empty muted" }, total === 0 ? "No tool was called yet. Calls of the agent and of MCP clients are logged here." : "No entry passes these filters."));
    // Few entries may pass the filters: what was read may hold none at all.
    if (this.shown === 0 && this.cursor !== null) this.load();
  }

  entry(entry) {
    const [state, said] = outcome(entry, this.ends.get(entry.seq), this.filter.decision !== "");
    const details = h("details", { class: "entry" });
    details.append(h("summary", {},
      h("span", { class: "entry-time number" }, entry.time_ms === undefined ? "–" : moment(entry.time_ms)),
      h("span", { class: "name" }, foreign(entry.tool ?? (entry.profile ? `profile ${entry.profile}` : "unreadable entry"))),
      h("span", { class: "call-state", "data-state": state }, said),
      h("span", { class: "muted entry-who" }, foreign(entry.who ?? ""))));
    details.addEventListener("toggle", () => details.append(facts(entry, this.ends.get(entry.seq))), { once: true });
    return details;
  }

  async readCheck() {
    try {
      this.showCheck(await call("v1/audit/check", { signal: this.aborter.signal }));
    } catch (error) {
      if (!isAbort(error) && error.code !== "wrong_scope") replace(this.state, foreign(error.message));
    }
  }

  async verify() {
    this.verifying.disabled = true;
    replace(this.state, h("p", {}, "Every entry is checked …"));
    try {
      let check = await call("v1/audit/check", { method: "POST", signal: this.aborter.signal });
      while (check.status === "running") {
        this.showCheck(check);
        await pause(PROGRESS_MS, this.aborter.signal);
        check = await call("v1/audit/check", { signal: this.aborter.signal });
      }
      this.showCheck(check);
    } catch (error) {
      if (!isAbort(error)) replace(this.state, h("p", { class: "warn-text" }, foreign(error.message)));
    }
    this.verifying.disabled = false;
  }

  showCheck({ status, started_at_ms: at, took_ms: ms, entries, head, anchored, error }) {
    const when = at && [" ", h("span", { class: "muted" }, moment(at), ms !== undefined && `, in ${took(ms)}`)];
    if (status === "never") return replace(this.state, h("p", {}, h("b", {}, "Not verified"), " since the server was started. A check follows the chain of hashes from the first entry to the last."));
    if (status === "running") return replace(this.state, h("p", {}, h("b", {}, "Every entry is checked"), `, ${count(entries)} so far.`));
    if (status === "failed") return replace(this.state, h("p", { class: "bad" }, h("b", {}, "The check failed. "), foreign(error.message), "."), h("p", {}, when));
    return replace(this.state,
      h("p", {}, h("b", { class: "good" }, "Unchanged"), `: ${entries === 1 ? "1 entry" : `${count(entries)} entries`}`, anchored < entries && `, the newest ${count(entries - anchored)} not anchored`, ".", when),
      h("p", { class: "muted head-hash" }, "Last hash ", h("code", {}, `${head.slice(0, 16)}…`), copyButton(() => head, "Copy"), " Kept elsewhere, it shows later whether entries were cut off."));
  }
}

/** What became of a call: a state for its colour, and words. */
function outcome(entry, end, isPart) {
  if (entry.event === "refused") return ["error", "refused"];
  if (entry.event === "dry_run") return ["", "dry run"];
  if (entry.event === "reviewed") return ["ok", REVIEWED[entry.verdict] ?? "reviewed"];
  if (entry.event === "profile_rolled_back") return ["ok", `version ${entry.version}, as ${entry.rolled_back_to}`];
  if (entry.event === "ended") return entry.status === "ok" ? ["ok", "ended"] : ["error", "failed"];
  if (end) return end.status === "ok" ? ["ok", `ok, ${took(end.took_ms)}`] : ["error", `failed, ${took(end.took_ms)}`];
  if (entry.event === undefined) return ["error", "unreadable"];
  // A filter by decision leaves out the ends of calls.
  return isPart ? ["", "made"] : ["asks", "no end in the log"];
}

function facts(entry, end) {
  const said = [
    ["Decision", entry.decision && `${DECISIONS[entry.decision] ?? entry.decision} by the rule ${entry.rule}`],
    ["Review", entry.change && `${entry.change} tool${entry.parts?.length ? `: ${entry.parts.join(", ")}` : ""}`],
    ["Catalog", entry.catalog],
    ["Class", CLASSES[entry.class] ?? entry.class],
    ["Person", answer(entry.answer)],
    ["Why not", [entry.reason, entry.error_code].filter(Boolean).join(": ")],
    ["Warnings", entry.warnings?.join("; ")],
    ["Error", end?.error_code],
    ["By", entry.who],
    ["On behalf of", entry.identity],
    ["Client", entry.client],
    ["Conversation", entry.conversation],
    ["For", entry.on_behalf_of],
    ["Entry", `${entry.seq}, hash ${entry.hash.slice(0, 16)}…`],
  ].filter(([, value]) => value);
  return h("div", { class: "entry-facts" },
    h("dl", { class: "bounds" }, said.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, foreign(String(value)))))),
    entry.given !== undefined && [h("h3", {}, entry.sent === undefined ? "Arguments" : "Arguments as the model gave them"), json(entry.given)],
    entry.sent !== undefined && [h("h3", {}, "Arguments as they were sent"), json(entry.sent)]);
}

const json = (value) => h("div", { class: "mono" }, long(JSON.stringify(value, null, 1)));

function answer(given) {
  if (!given) return "";
  const by = given.by ? ` by ${given.by}` : "";
  return `${given.answer}${by}${given.reason ? `: ${given.reason}` : ""}`;
}
