/** What the model is shown of a request's tools, with the program in between and without: scripts/dropin_tokens.sh. */

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { asking, searchTool } from "./model.mjs";
import { KEY, Provider } from "./provider.mjs";
import { Random } from "./random.mjs";
import { rawElements, rawMembers } from "./raw.mjs";
import { Server } from "./server.mjs";
import { SHAPES } from "./tools.mjs";

const lines = (file) => readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / Math.max(1, numbers.length);

/** The tools as the API takes them, under names that it allows, which `names` gives by id. */
function readTools(folder) {
  const names = new Map();
  const taken = new Set();
  const tools = lines(join(folder, "tools.jsonl")).map(({ id, name, description, inputSchema, server }) => {
    const whole = (server ? `${server}_${name}` : name).replaceAll(/[^a-zA-Z0-9_-]/g, "_").slice(0, 60);
    let given = whole;
    for (let more = 2; taken.has(given); more += 1) given = `${whole}_${more}`;
    taken.add(given);
    names.set(id, given);
    return SHAPES.chat({ name: given, description, parameters: inputSchema ?? { type: "object" } });
  });
  return { tools, names };
}

/** Tokens of the tools of each request that the provider got for one question, and the names in the last. */
async function ask(provider, server, tools, query, right, limit) {
  const sent = [];
  provider.watch = (text) => sent.push(text);
  const calls = right.map((name) => ({ name, arguments: {}, need: query }));
  const content = asking("Please.", { steps: [{ calls, limit }] });
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${KEY}` },
    body: `{"model":"m","messages":${JSON.stringify([{ role: "user", content }])},"tools":${tools}}`,
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  await response.json();
  return sent.map((text) => rawElements(rawMembers(text).get("tools")));
}

const counted = new Map();

function tokensOf(tools) {
  return tools.reduce((sum, tool) => {
    if (!counted.has(tool)) counted.set(tool, countTokens(tool));
    return sum + counted.get(tool);
  }, 0);
}

async function measure(folder, most, limit) {
  const { tools, names } = readTools(folder);
  const text = JSON.stringify(tools);
  const all = tokensOf(rawElements(text));
  const queries = new Random("queries").sample(lines(join(folder, "queries.jsonl")), most);
  const provider = await Provider.start();
  const server = await Server.start(provider.url, { embedder: "table" });
  const [first, last, shares, counts] = [[], [], [], []];
  try {
    for (const { query, relevant } of queries) {
      const right = relevant.map((id) => names.get(id)).filter(Boolean);
      const requests = await ask(provider, server, text, query, right, limit);
      const shown = new Set(requests.at(-1).map((tool) => JSON.parse(tool).function.name));
      first.push(tokensOf(requests[0]));
      last.push(tokensOf(requests.at(-1)));
      counts.push(shown.size - (searchTool(requests.at(-1).map((tool) => JSON.parse(tool).function)) ? 1 : 0));
      shares.push(right.filter((name) => shown.has(name)).length / right.length);
    }
  } finally {
    provider.watch = null;
    await server.end();
    await provider.end();
  }
  if (provider.complaints.length > 0) throw new Error(provider.complaints[0]);
  const turn = mean(first) + mean(last);
  return [
    basename(folder), tools.length, queries.length, mean(queries.map(({ relevant }) => relevant.length)).toFixed(1), all, Math.round(mean(first)), Math.round(mean(last)),
    `${(100 * (1 - turn / all)).toFixed(1)} %`, mean(counts).toFixed(1), `${(100 * mean(shares)).toFixed(1)} %`, `${(100 * mean(shares.map((share) => (share === 1 ? 1 : 0)))).toFixed(1)} %`,
  ];
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { queries: { type: "string", default: "200" }, limit: { type: "string" } } });
const heads = ["set", "tools", "requests", "right tools", "tokens of all tools", "tokens shown first", "shown after the search", "saved, both rounds", "tools found", "right ones shown", "all right ones shown"];
console.log(`| ${heads.join(" | ")} |\n|${heads.map(() => "---").join("|")}|`);
for (const folder of positionals) console.log(`| ${(await measure(folder, Number(values.queries), values.limit && Number(values.limit))).join(" | ")} |`);
process.exit(0);
