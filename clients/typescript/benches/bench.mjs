// Measures the engine in Node: what a call costs, and equality.
//
//     node bench.mjs overhead SET [QUERIES]
//     node bench.mjs equality PROGRAM SET [SET ...]
//
// SET is a folder with tools.jsonl and queries.jsonl. Run in a project in which `toolscout` is installed. `overhead` is the
// time of a call less the engine's own. `equality` compares 2,000 requests with a server of PROGRAM: ids, order and scores.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const LIMIT = 10;
const WARM_UP = 20;
const EQUALITY_QUERIES = 2000;
const OVERHEAD_QUERIES = 500;
// For some moments after a commit each search looks for another one, since a file's time is not exact.
const SETTLE_MS = 3000;

const installed = createRequire(`${process.cwd()}/`);
const { Catalog } = await import(pathToFileURL(installed.resolve("toolscout")));

// Queries of a set at equal distances.
function queriesOf(folder, count) {
  const lines = readFileSync(join(folder, "queries.jsonl"), "utf8").split("\n").filter((line) => line.trim());
  const texts = lines.map((line) => JSON.parse(line).query);
  const step = Math.max(1, Math.floor(texts.length / count));
  return texts.filter((_, index) => index % step === 0).slice(0, count);
}

function percentile(values, share) {
  const ordered = [...values].sort((a, b) => a - b);
  return ordered[Math.min(ordered.length - 1, Math.floor(share * ordered.length))];
}

async function overhead(folder, count) {
  const texts = queriesOf(folder, count);
  const catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(join(folder, "tools.jsonl"));
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  for (const text of texts.slice(0, WARM_UP)) await catalog.search(text);
  const uses = {
    search: (results) => results,
    "search, ids and scores read": (results) => results.hits.map((hit) => [hit.id, hit.score]),
    "search, tools for a model": (results) => results.tools("openai"),
  };
  for (const [name, use] of Object.entries(uses)) {
    const extra = [];
    const total = [];
    for (const text of texts) {
      const start = performance.now();
      const results = await catalog.search(text, { limit: 5 });
      use(results);
      const took = performance.now() - start;
      total.push(took);
      extra.push((took - results.timings.total_ms) * 1e3);
    }
    const [median, tail, whole] = [percentile(extra, 0.5), percentile(extra, 0.95), percentile(total, 0.5)];
    console.log(`${name}: ${median.toFixed(1)} µs beyond the engine's of ${whole.toFixed(3)} ms (p95 ${tail.toFixed(1)} µs)`);
  }
  await catalog.close();
}

async function serve(program, data) {
  const words = ["--data", data, "serve", "--listen", "127.0.0.1:0", "--log", "warn"];
  const server = spawn(program, words, { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: server.stdout })) {
    if (line.startsWith("listening on ")) return { server, url: line.slice("listening on ".length).trim() };
  }
  throw new Error("the server did not start");
}

async function ask(url, query) {
  const body = JSON.stringify({ query, k: LIMIT });
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const answer = await fetch(`${url}/v1/search`, { method: "POST", headers: { "content-type": "application/json" }, body });
    if (answer.ok) return (await answer.json()).hits.map(({ id, score }) => [id, score]);
    // The catalog is being opened.
    await new Promise((resolve) => setTimeout(resolve, 100 * (attempt + 1)));
  }
  throw new Error("the server does not answer");
}

async function equality(program, folders) {
  const ofEach = Math.ceil(EQUALITY_QUERIES / folders.length);
  let compared = 0;
  let different = 0;
  for (const folder of folders) {
    const data = await mkdtemp(join(tmpdir(), "toolscout-bench-"));
    const catalog = await Catalog.open(data);
    await catalog.add(join(folder, "tools.jsonl"));
    const { server, url } = await serve(program, data);
    try {
      for (const text of queriesOf(folder, ofEach)) {
        const { hits } = await catalog.search(text, { limit: LIMIT });
        const ours = JSON.stringify(hits.map(({ id, score }) => [id, score]));
        const theirs = JSON.stringify(await ask(url, text));
        compared += 1;
        if (ours === theirs) continue;
        different += 1;
        console.log(`${basename(folder)}: ${JSON.stringify(text)}\n  ${ours}\n  ${theirs}`);
      }
    } finally {
      server.kill();
      await catalog.close();
      await rm(data, { recursive: true });
    }
    console.log(`${basename(folder)}: ${compared} requests so far, ${different} answered differently`);
  }
  process.exitCode = different > 0 ? 1 : 0;
}

const [what, ...rest] = process.argv.slice(2);
if (what === "overhead") await overhead(rest[0], Number(rest[1] ?? OVERHEAD_QUERIES));
else if (what === "equality") await equality(rest[0], rest.slice(1));
else throw new Error("usage: node bench.mjs overhead SET [QUERIES] | equality PROGRAM SET [SET ...]");
