// The program that the package installs is the program.

import assert from "node:assert/strict";
import { spawn, spawnSync, type SpawnSyncOptions } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Catalog } from "toolscout";

import { OFFICE, PROGRAM, end, folder, serve } from "./fixtures.js";

const data = folder();

function run(line: string[], options: SpawnSyncOptions = {}) {
  return spawnSync(PROGRAM, ["--data", data, ...line], { timeout: 60_000, ...options, encoding: "utf8" });
}

before(() => {
  const file = join(folder(), "tools.json");
  writeFileSync(file, JSON.stringify(OFFICE));
  const done = run(["--embedder", "table", "add", file, "--server", "office"]);
  assert.equal(done.status, 0, done.stderr);
});

test("it answers as the engine does", async () => {
  const found = run(["search", "report a bug", "--json"]);
  const { hits } = JSON.parse(found.stdout) as { hits: { id: string; score: number }[] };
  await using catalog = await Catalog.open(data);
  const results = await catalog.search("report a bug");
  assert.deepEqual(results.hits.map(({ id, score }) => [id, score]), hits.map(({ id, score }) => [id, score]));
});

test("exit codes and streams are those of the program", () => {
  assert.equal(run(["search"]).status, 2);
  const unknown = run(["no-such-verb"]);
  assert.deepEqual([unknown.status, unknown.stdout], [2, ""]);
  assert.match(run(["--help"]).stdout, /Usage: toolscout/);
  const missing = run(["--catalog", "nothing", "stats"]);
  assert.deepEqual([missing.status, missing.stdout], [1, ""]);
  assert.match(missing.stderr, /^error: no catalog "nothing"/);
  const added = run(["add", "-"], { input: JSON.stringify({ name: "from_stdin" }) });
  assert.equal(added.status, 0, added.stderr);
  // A reader that goes away is no error, and nothing is printed about it.
  const script = `'${PROGRAM}' --data '${data}' list --json | true; echo \${PIPESTATUS[0]}`;
  const piped = spawnSync("bash", ["-c", script], { encoding: "utf8" });
  assert.deepEqual([piped.stdout, piped.stderr], ["0\n", ""]);
});

test("Ctrl-C ends it as it ends the program", async () => {
  // It waits for standard input, with no handler for Ctrl-C yet.
  const waiting = spawn(PROGRAM, ["--data", data, "add", "-"], { stdio: ["pipe", "ignore", "ignore"] });
  await sleep(1500);
  waiting.kill("SIGINT");
  const [, signal] = (await once(waiting, "exit")) as [number | null, string | null];
  assert.equal(signal, "SIGINT");
});

test("a server ends gracefully", async () => {
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    const { url, server } = await serve(data);
    const health = await fetch(`${url}/healthz`);
    assert.deepEqual([await end(server, signal), health.status], [0, 200]);
  }
});

test("mcp speaks over standard streams", async () => {
  const gateway = spawn(PROGRAM, ["--data", data, "mcp"], { stdio: ["pipe", "pipe", "ignore"] });
  const lines = createInterface(gateway.stdout)[Symbol.asyncIterator]();
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  const messages = [
    { id: 1, method: "initialize", params },
    { method: "notifications/initialized" },
    { id: 2, method: "tools/list" },
  ];
  for (const message of messages) gateway.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  await lines.next();
  const { value } = await lines.next();
  const { result } = JSON.parse(String(value)) as { result: { tools: { name: string }[] } };
  assert.ok(result.tools.some(({ name }) => name === "tool_search"));
  gateway.stdin.end();
  assert.deepEqual(await once(gateway, "exit"), [0, null]);
});

test("clients are told the script", () => {
  const env = { HOME: folder(), PATH: process.env.PATH };
  const done = run(["mcp", "install", "--client", "cursor", "--dry-run"], { env });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /node_modules\/\.bin\/toolscout"/);
});
