/** Screen Connect: what to write into a program so that it uses this server. */

import { key } from "./api.js";
import { copyButton, h, replace } from "./dom.js";
import { address, note } from "./place.js";

/** Stands for a key, which an address or a snippet never holds. */
const KEY = "YOUR_KEY";

const MODEL_KEY = `In the place of ${KEY} comes a key of this server with the scope llm.`;

const json = (value) => JSON.stringify(value, null, 2);

/**
 * The programs: what each is, and what connects it. `url` is the address of this server, `hasKeys` whether it asks for keys, and
 * `catalog` the one that is chosen.
 */
const PROGRAMS = {
  "claude-code": { title: "Claude Code", kind: "mcp", file: "in a terminal", text: ({ url, hasKeys }) => `claude mcp add --transport http toolscout ${url}/mcp${hasKeys ? ` --header "Authorization: Bearer ${KEY}"` : ""}` },
  cursor: { title: "Cursor", kind: "mcp", file: "~/.cursor/mcp.json", text: (given) => json({ mcpServers: { toolscout: { url: `${given.url}/mcp`, ...headers(given) } } }) },
  vscode: { title: "VS Code", kind: "mcp", file: ".vscode/mcp.json", text: (given) => json({ servers: { toolscout: { type: "http", url: `${given.url}/mcp`, ...headers(given) } } }) },
  codex: { title: "Codex", kind: "mcp", file: "~/.codex/config.toml", text: ({ url, hasKeys }) => `[mcp_servers.toolscout]\nurl = "${url}/mcp"${hasKeys ? '\nbearer_token_env_var = "TOOLSCOUT_KEY"' : ""}`, keyHint: "The environment variable TOOLSCOUT_KEY holds a key of this server." },
  mcp: { title: "Another MCP client", kind: "mcp", file: "its settings", text: (given) => json({ mcpServers: { toolscout: { type: "http", url: `${given.url}/mcp`, ...headers(given) } } }) },
  openai: { title: "OpenAI SDK", kind: "dropin", file: "in your program (Python)", text: ({ url, hasKeys }) => `client = OpenAI(base_url="${url}/v1"${hasKeys ? `, api_key="${KEY}"` : ""})`, keyHint: MODEL_KEY },
  anthropic: { title: "Anthropic SDK", kind: "dropin", file: "in your program (Python)", text: ({ url, hasKeys }) => `client = Anthropic(base_url="${url}"${hasKeys ? `, api_key="${KEY}"` : ""})`, keyHint: MODEL_KEY },
  curl: { title: "curl", kind: "api", file: "in a terminal", text: ({ url, hasKeys, catalog }) => `curl${hasKeys ? ` -H "Authorization: Bearer ${KEY}"` : ""} "${url}/v1/catalogs/${encodeURIComponent(catalog)}/search?q=send+mail"` },
  python: { title: "Python", kind: "api", file: "the Python client", text: ({ url, hasKeys, catalog }) => `import toolscout\n\nwith toolscout.Client(${json(url)}, catalog=${json(catalog)}${hasKeys ? `, key="${KEY}"` : ""}) as client:\n    answer = client.search("send mail", limit=5, format="openai")` },
  typescript: { title: "TypeScript", kind: "api", file: "the TypeScript client", text: ({ url, hasKeys, catalog }) => `import { Client } from "toolscout";\n\nconst client = new Client(${json(url)}, { catalog: ${json(catalog)}${hasKeys ? `, key: "${KEY}"` : ""} });\nconst answer = await client.search("send mail", { limit: 5, format: "openai" });` },
};

const headers = ({ hasKeys }) => (hasKeys ? { headers: { Authorization: `Bearer ${KEY}` } } : {});

const KINDS = {
  mcp: ["An MCP client", "Its model sees a few tools of this server, searches the catalog that the server was started with by tool_search, and calls what it finds through the gate."],
  dropin: ["A program that talks to a model", "It keeps its own tools. This server searches them for each request and passes on only those that fit. It needs a provider: toolscout serve --llm URL."],
  api: ["A program of your own", "It asks for the tools that fit a request and gives them to its model."],
};

/**
 * Shows the screen.
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @param {{list: object[], name: string}} catalogs
 */
export function connect(root, params, { name }) {
  const chosen = params.get("to") ?? "";
  const given = { url: location.origin + location.pathname.replace(/\/$/u, ""), hasKeys: key.read() !== "", catalog: name };
  const snippet = h("div", { role: "status" });
  const show = (to) => {
    for (const button of root.querySelectorAll("[data-to]")) button.setAttribute("aria-pressed", String(button.dataset.to === to));
    replace(snippet, snippetOf(PROGRAMS[to], given));
    note("connect", { c: params.get("c"), to });
  };
  const choose = (to) => {
    show(to);
    snippet.scrollIntoView({ block: "nearest" });
  };
  const groups = Object.entries(KINDS).map(([kind, [title, says]]) => h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "muted" }, says),
    h("div", { class: "programs" }, Object.entries(PROGRAMS).filter(([, program]) => program.kind === kind).map(([to, program]) => h("button", { type: "button", "data-to": to, "aria-pressed": "false", onclick: () => choose(to) }, program.title)))));
  replace(root, h("div", { class: "connect" }, h("h1", {}, "Connect a program"), groups, snippet));
  if (Object.hasOwn(PROGRAMS, chosen)) show(chosen);
  return { stop() {}, again() {} };
}

function snippetOf({ title, file, text, keyHint = `In the place of ${KEY} comes a key of this server.` }, given) {
  const written = text(given);
  return h("section", { class: "card", "aria-label": title },
    h("div", { class: "export-head" }, h("span", {}, h("b", {}, title), ", ", h("code", {}, file)), copyButton(() => written)),
    h("pre", { tabindex: 0, "aria-label": `For ${title}` }, written),
    given.hasKeys && h("p", { class: "muted" }, keyHint, " ", h("a", { class: "link", href: address("operations", { view: "keys" }) }, "Make one for this program"), "."));
}
