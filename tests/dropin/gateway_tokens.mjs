/** Tokens of the MCP server's answers, with signatures and with schemas, and the right tools in them: scripts/gateway_tokens.sh. */

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { Random } from "./random.mjs";

const PROGRAM = process.env.TOOLSCOUT;
const lines = (file) => readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / Math.max(1, numbers.length);
const quantile = (numbers, share) => numbers.toSorted((a, b) => a - b)[Math.floor((numbers.length - 1) * share)];

/** `toolscout mcp` over a catalog of these tools. */
class Gateway {
  #child;
  #answers = new Map();
  #next = 0;

  constructor(folder, data) {
    const flags = ["--data", data, "--embedder", "table"];
    const added = spawnSync(PROGRAM, [...flags, "add", join(folder, "tools.jsonl")], { encoding: "utf8" });
    if (added.status !== 0) throw new Error(added.stderr);
    this.#child = spawn(PROGRAM, [...flags, "mcp"], { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      const { id, result, error } = JSON.parse(line);
      this.#answers.get(id)?.(error ? { error } : result);
    });
  }

  request(method, params) {
    this.#next += 1;
    const id = this.#next;
    const answered = new Promise((done) => this.#answers.set(id, done));
    this.#send({ id, method, params });
    return answered;
  }

  async begin() {
    const clientInfo = { name: "tokens", version: "1" };
    await this.request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    this.#send({ method: "notifications/initialized" });
  }

  async text(name, args) {
    const { content, error } = await this.request("tools/call", { name, arguments: args });
    if (error) throw new Error(JSON.stringify(error));
    return content[0].text;
  }

  #send(message) {
    this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  end() {
    this.#child.stdin.end();
    return new Promise((done) => this.#child.on("exit", done));
  }
}

/** The ids of the tools in an answer: those that were found, without those for which there was no room. */
function shown(text, detail, found) {
  const { tools, no_room_for: omitted = [] } = JSON.parse(text);
  if (detail === "signature") return tools.map((tool) => tool.split("(")[0]);
  if (tools.length + omitted.length !== found.length) throw new Error(`${found.length} were found: ${text}`);
  // A definition has the name as models' providers allow it; the order is that of the hits.
  return omitted.length === 0 ? found : found.filter((id) => tools.some((tool) => isOf(tool, id)));
}

/** Names are cut to 64 characters, with a hash at their end. */
function isOf({ server, name }, id) {
  const plain = (text) => text.replaceAll(/[^a-zA-Z0-9]/g, "_");
  const of = id.slice(server.length + 1);
  return id.startsWith(`${server}/`) && plain(name).includes(plain(of).slice(0, 20));
}

async function measure(folder, most, limit) {
  const known = new Set(lines(join(folder, "tools.jsonl")).map(({ id }) => id));
  const queries = new Random("queries").sample(lines(join(folder, "queries.jsonl")), most);
  const data = mkdtempSync(join(tmpdir(), "toolscout-tokens-"));
  const gateway = new Gateway(folder, data);
  const rows = [];
  try {
    await gateway.begin();
    const found = new Map();
    for (const detail of ["signature", "schema"]) {
      const [tokens, shares, described] = [[], [], []];
      for (const { query, relevant } of queries) {
        const right = relevant.filter((id) => known.has(id));
        const answer = await gateway.text("tool_search", { query, limit, detail });
        const ids = shown(answer, detail, found.get(query));
        found.set(query, found.get(query) ?? ids);
        const shownRight = right.filter((id) => ids.includes(id));
        tokens.push(countTokens(answer));
        shares.push(shownRight.length / Math.max(1, right.length));
        if (detail === "schema" || shownRight.length === 0) described.push(tokens.at(-1));
        else described.push(tokens.at(-1) + countTokens(await gateway.text("describe_tool", { names: shownRight })));
      }
      rows.push([
        basename(folder), known.size, queries.length, detail, quantile(tokens, 0.5), quantile(tokens, 0.95), Math.round(mean(described)),
        `${(100 * mean(shares)).toFixed(1)} %`, `${(100 * mean(shares.map((share) => (share === 1 ? 1 : 0)))).toFixed(1)} %`,
      ]);
    }
  } finally {
    await gateway.end();
    rmSync(data, { recursive: true });
  }
  return rows;
}

const options = { queries: { type: "string", default: "200" }, limit: { type: "string", default: "5" } };
const { values, positionals } = parseArgs({ allowPositionals: true, options });
const heads = ["set", "tools", "requests", "detail", "tokens of an answer, p50", "p95", "with definitions of the right tools, mean", "right tools shown", "all right tools shown"];
console.log(`| ${heads.join(" | ")} |\n|${heads.map(() => "---").join("|")}|`);
for (const folder of positionals) {
  for (const row of await measure(folder, Number(values.queries), Number(values.limit))) console.log(`| ${row.join(" | ")} |`);
}
