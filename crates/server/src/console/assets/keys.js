/** API keys: who may do what. */

import { call, isAbort, key as ownKey } from "./api.js";
import { ask, field, tell } from "./dialog.js";
import { announce, copyButton, h, icon, replace, skeleton } from "./dom.js";
import { moment, notShown } from "./panels.js";
import { count, counted, foreign } from "./text.js";

const PAGE = 200;
/** Most catalogs that are offered; others can be typed. */
const MOST_LISTED = 50;
const SCOPES = {
  search: "search, list, give feedback, ask the agent",
  call: "call tools over MCP that do more than read",
  approve: "approve the calls of its own runs",
  llm: "use the model that this server pays for",
  admin: "everything in its catalogs; the model with all catalogs alone, or with llm",
};
const DAY_S = 24 * 60 * 60;
const LIFETIMES = [["", "Until it is revoked"], [DAY_S, "A day"], [30 * DAY_S, "30 days"], [90 * DAY_S, "90 days"], [365 * DAY_S, "A year"]];

export function keys(root, _params, catalogs) {
  const view = new KeysView(root, catalogs);
  view.fill();
  return view;
}

class KeysView {
  constructor(root, catalogs) {
    const filled = catalogs.filter(({ tools }) => tools > 0);
    Object.assign(this, { root, usual: (filled.find(({ name }) => name === "default") ?? filled[0] ?? catalogs[0])?.name, catalogs: catalogs.map(({ name }) => name), aborter: new AbortController() });
  }

  stop() {
    this.aborter.abort();
  }

  /** Is called when the server is back. */
  again() {
    this.fill();
  }

  async fill() {
    if (!this.list) replace(this.root, skeleton(4, "short"));
    try {
      this.show(await this.read(null));
    } catch (error) {
      if (!isAbort(error)) replace(this.root, notShown(error, () => this.fill()));
    }
  }

  async read(cursor) {
    const query = new URLSearchParams({ limit: PAGE, ...(cursor && { cursor }) });
    return call(`v1/keys?${query}`, { signal: this.aborter.signal });
  }

  show(page) {
    this.isInUse = page.in_use;
    this.list = h("ul", { class: "api-keys" });
    const create = h("button", { type: "button", class: "primary", onclick: () => this.create() }, icon("plus"), page.in_use ? "New key" : "First key");
    const more = h("button", { type: "button", hidden: true }, "Older keys");
    const said = h("p", { class: "muted" }, `${counted(page.total, "key")}, revoked and expired ones too. Only hashes of keys are stored.`);
    replace(this.root, page.in_use ? [h("div", { class: "operations-head" }, said, create), this.list, more] : noKeys(create));
    const add = ({ keys: listed, next_cursor: cursor }) => {
      this.list.append(...listed.map((one) => this.row(one)));
      more.hidden = cursor === undefined;
      more.onclick = async () => add(await this.read(cursor));
    };
    add(page);
  }

  row(one) {
    const dates = [["created", one.created_at], [one.state === "expired" ? "expired" : "expires", one.expires_at], ["revoked", one.revoked_at], [one.last_used_at === null ? "" : "last used", one.last_used_at]];
    return h("li", { class: `api-key ${one.state}` },
      h("div", { class: "head" }, one.name && h("b", {}, foreign(one.name)), h("code", { class: "name" }, foreign(one.id)),
        h("span", { class: "call-state", "data-state": one.state === "valid" ? "ok" : "error" }, one.state),
        one.scopes.map((scope) => h("span", { class: scope === "admin" ? "badge accent" : "badge", title: SCOPES[scope] }, scope)),
        one.is_own && h("span", { class: "badge accent" }, "of this tab"),
        one.state !== "revoked" && h("button", { type: "button", class: "quiet", "aria-label": `Revoke ${one.id}`, onclick: () => this.revoke(one) }, "Revoke")),
      h("p", { class: "muted" }, catalogsOf(one), profilesOf(one), dates.filter(([, at]) => at !== null).map(([name, at]) => [` · ${name} `, moment(at * 1000)])));
  }

  async create() {
    const given = await ask(this.isInUse ? "New key" : "First key", this.form(), { accept: "Create key" }, isComplete);
    if (!given) return;
    const scopes = given.getAll("scope");
    const name = given.get("name").trim();
    const rights = this.isInUse
      ? { scopes: scopes.length > 0 ? scopes : ["search"], catalogs: chosenCatalogs(given), profiles: namesIn(given.get("profiles")), ...(given.get("expires") && { expires_in_s: Number(given.get("expires")) }) }
      : { scopes: ["admin"], catalogs: ["*"] };
    const json = { ...rights, ...(name && { name }) };
    try {
      const made = await call("v1/keys", { method: "POST", json });
      // At once: the next request needs it.
      if (!this.isInUse) ownKey.store(made.key);
      await showKey(made, !this.isInUse);
      this.fill();
    } catch (error) {
      await tell("Not created", error);
    }
  }

  form() {
    if (!this.isInUse) {
      return [
        h("p", {}, "From the first key on every request to this server needs one: those of programs, of MCP clients, and of this page."),
        h("p", {}, "So the first key may do everything in all catalogs, and does not expire. This tab uses it at once. Store it: it is shown once."),
        nameField(),
      ];
    }
    const scopes = Object.entries(SCOPES).map(([scope, means]) => choice("checkbox", "scope", scope, [h("b", {}, scope), `: ${means}`], scope === "search"));
    const listed = this.catalogs.slice(0, MOST_LISTED).map((name) => choice("checkbox", "catalog", name, foreign(name), name === this.usual));
    return [
      nameField(),
      h("fieldset", {}, h("legend", {}, "It may"), scopes),
      h("fieldset", {}, h("legend", {}, "In the catalogs"),
        choice("radio", "which", "named", "chosen here", true),
        h("div", { class: "listed" }, listed),
        field("Others, with commas between them", "catalogs", { maxlength: 4000 }, "A key may name a catalog that does not exist yet."),
        choice("radio", "which", "all", "all of them, future ones too", false)),
      field("Only with the profiles, with commas between them", "profiles", { maxlength: 4000 }, "Names of [profiles] in the settings of the server. Without any, all tools of the catalogs."),
      h("div", { class: "field" }, h("label", { for: "field-expires" }, "Valid"), h("select", { id: "field-expires", name: "expires" }, LIFETIMES.map(([value, title]) => h("option", { value }, title)))),
    ];
  }

  async revoke(one) {
    const content = [
      h("p", {}, "Requests with ", h("code", {}, foreign(one.id)), " are refused from then on. It cannot be undone."),
      one.is_own && h("p", { class: "notice warn" }, "It is the key of this tab: the page will ask for another one."),
    ];
    if (!(await ask("Revoke this key?", content, { accept: "Revoke", isDangerous: true }))) return;
    try {
      await this.sendRevoke(one, false);
    } catch (error) {
      if (error.code === "last_admin_key") await this.revokeLast(one);
      else await tell("Not revoked", error);
    }
  }

  async revokeLast(one) {
    const content = [
      h("p", {}, "It is the last admin key for all catalogs. Without it nobody can make or revoke keys here; only ", h("code", {}, "toolscout keys create"), " on the server's machine can."),
      field(`Type ${one.id} to revoke it all the same`, "id", { autofocus: true }),
    ];
    const isTyped = (form) => form.elements.id.value === one.id;
    if (!(await ask("Revoke the last admin key?", content, { accept: "Revoke", isDangerous: true }, isTyped))) return;
    try {
      await this.sendRevoke(one, true);
    } catch (error) {
      await tell("Not revoked", error);
    }
  }

  async sendRevoke({ id }, force) {
    await call(`v1/keys/${encodeURIComponent(id)}?force=${force}`, { method: "DELETE" });
    announce(`Revoked ${id}`);
    this.fill();
  }
}

function noKeys(create) {
  return h("div", { class: "empty" }, h("h2", {}, "No key is needed"),
    h("p", { class: "muted" }, "Whoever can connect to this server may do everything. It listens on this machine alone, or was told to be open. Once there is a key, every request needs one."), create);
}

function catalogsOf({ catalogs }) {
  if (catalogs.length === 1 && catalogs[0] === "*") return "all catalogs";
  return [catalogs.length === 1 ? "catalog " : "catalogs ", catalogs.slice(0, 20).map((name, index) => [index > 0 && ", ", foreign(name)]), catalogs.length > 20 && ` and ${count(catalogs.length - 20)} more`];
}

function profilesOf({ profiles }) {
  if (profiles.length === 0) return "";
  return [` · only the ${profiles.length === 1 ? "profile" : "profiles"} `, profiles.map((name, index) => [index > 0 && ", ", foreign(name)])];
}

function choice(type, name, value, label, checked) {
  return h("label", { class: "check" }, h("input", { type, name, value, checked }), h("span", {}, label));
}

const nameField = () => field("What you call it", "name", { maxlength: 100, autofocus: true }, "To tell it from other keys, for example the program that uses it.");

const namesIn = (text) => text.split(",").map((name) => name.trim()).filter(Boolean);
const chosenCatalogs = (given) => (given.get("which") === "all" ? ["*"] : [...given.getAll("catalog"), ...namesIn(given.get("catalogs"))]);

/** The first key has no fields. */
function isComplete(form) {
  if (!form.elements.which) return true;
  return chosenCatalogs(new FormData(form)).length > 0;
}

async function showKey({ key: secret, unknown_catalogs: unknown = [], unknown_profiles: missing = [] }, isFirst) {
  const content = [
    h("p", {}, isFirst ? "This tab uses it now. Store it in a safe place: it is not shown again, and when the tab is closed it is gone." : "Store it now: it is not shown again."),
    h("div", { class: "secret" }, h("code", {}, secret), copyButton(() => secret, "Copy")),
    unknown.length > 0 && h("p", { class: "notice warn" }, "There is no catalog yet named ", unknown.map((name, index) => [index > 0 && ", ", foreign(name)]), "."),
    missing.length > 0 && h("p", { class: "notice warn" }, "This server has no profile named ", missing.map((name, index) => [index > 0 && ", ", foreign(name)]), "."),
  ];
  await ask("The key", content, { accept: "I have stored it", refuse: null, isClosedByEscape: false });
}
