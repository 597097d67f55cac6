// Catalogs: writing, searching, reading.

import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

import { Catalog, type SearchOptions, type Tool, type Tools } from "toolscout";

import { OFFICE, folder, many, tool } from "./fixtures.js";

async function office(): Promise<Catalog> {
  const catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(OFFICE, { server: "office" });
  return catalog;
}

async function ids(tools: AsyncIterable<Tool>): Promise<string[]> {
  const found = [];
  for await (const { id } of tools) found.push(id);
  return found;
}

test("tools of every form are added", async () => {
  await using catalog = await Catalog.temporary({ embedder: "table" });
  const added = async (tools: Tools) => (await catalog.add(tools)).added;
  assert.deepEqual(await added(tool("one")), ["one"]);
  const two = await catalog.add([tool("two"), tool("three")], { server: "s" });
  assert.deepEqual(two.added, ["s/three", "s/two"]);
  assert.deepEqual(await added(new Set([tool("four")])), ["four"]);
  async function* later() {
    yield await Promise.resolve(tool("five"));
  }
  assert.deepEqual(await added(later()), ["five"]);
  assert.deepEqual(await added(JSON.stringify({ tools: [tool("six")] })), ["six"]);
  assert.deepEqual(await added(new TextEncoder().encode(JSON.stringify(tool("seven")))), ["seven"]);
  const lines = ["eight", "nine"].map((name) => JSON.stringify(tool(name)));
  assert.deepEqual(await added(lines.join("\n")), ["eight", "nine"]);
  const file = join(folder(), "tools.json");
  writeFileSync(file, JSON.stringify([tool("ten")]));
  assert.deepEqual(await added(file), ["ten"]);
  assert.equal((await catalog.add(pathToFileURL(file))).unchanged, 1);
  const openai = { type: "function", function: { name: "eleven", description: "x" } };
  const anthropic = { name: "twelve", input_schema: { type: "object" } };
  assert.deepEqual(await added([openai, anthropic]), ["eleven", "twelve"]);
  assert.deepEqual(await added([]), []);
});

test("a search finds, explains, and writes tools for a model", async () => {
  await using catalog = await office();
  const results = await catalog.search("report a bug", { limit: 2, explain: true });
  const [first] = results.hits;
  assert.ok(first);
  assert.deepEqual([first.id, first.name, first.server], ["office/create_issue", "create_issue", "office"]);
  assert.deepEqual([results.mode, results.queries], ["hybrid", ["report a bug"]]);
  assert.ok((first.explain?.fused as number) > 0);
  assert.deepEqual([...results], results.hits);
  assert.deepEqual([results.degraded, results.noMatch], [undefined, undefined]);
  assert.ok((results.confidence ?? -1) >= 0 && (results.timings.total_ms ?? 0) > 0);
  assert.deepEqual(first.tool.inputSchema.properties, { title: { type: "string" } });
  const json = JSON.parse(JSON.stringify(results)) as { hits: { id: string; score: number }[] };
  const scores = (hits: readonly { id: string; score: number }[]) => hits.map(({ id, score }) => [id, score]);
  assert.deepEqual(scores(json.hits), scores(results.hits));
  assert.equal(results.tools("names")[0], "office__create_issue");
  assert.equal((results.tools("openai")[0]?.function as { name: string }).name, "office__create_issue");
  assert.equal(results.tools("mcp").tools[0]?.name, "office__create_issue");
  assert.equal(results.tools("anthropic", { maxTokens: 100 })[0]?.name, "office__create_issue");
  assert.match(first.tool.to("signature"), /^office\/create_issue/);
});

test("filters restrict hits", async () => {
  await using catalog = await office();
  const mail = { ...tool("read_mail", "Reads an email."), annotations: { readOnlyHint: true }, tags: ["mail"] };
  await catalog.add(mail, { server: "inbox" });
  const found = async (options: SearchOptions) => (await catalog.search("email", options)).ids;
  assert.deepEqual(await found({ servers: "inbox" }), ["inbox/read_mail"]);
  assert.deepEqual(await found({ tags: ["mail"] }), ["inbox/read_mail"]);
  assert.deepEqual(await found({ ids: ["office/send_email"] }), ["office/send_email"]);
  assert.deepEqual(await found({ readOnly: true }), ["inbox/read_mail"]);
  assert.deepEqual(await ids(catalog.tools({ servers: "inbox", tags: "mail" })), ["inbox/read_mail"]);
  const several = await catalog.search(["send an email", "add an event"], { limit: 2, servers: "office" });
  assert.deepEqual(several.ids.sort(), ["office/create_event", "office/send_email"]);
});

test("a catalog is read tool by tool, as it was", async () => {
  await using catalog = await office();
  const expected = ["office/create_event", "office/create_issue", "office/send_email"];
  assert.equal((await catalog.get("office/send_email"))?.title, null);
  assert.equal(await catalog.get("office/nothing"), undefined);
  const begun = catalog.tools();
  assert.equal((await begun.next()).value?.id, expected[0]);
  assert.deepEqual((await catalog.remove([...expected, "office/nothing"])).removed, expected);
  assert.deepEqual(await ids(begun), expected.slice(1));
  assert.deepEqual(await ids(catalog), []);
  await catalog.add(many(600), { embed: false });
  assert.equal((await ids(catalog)).length, 600);
});

test("changes say what changed", async () => {
  await using catalog = await office();
  const tools = [{ ...OFFICE[0], description: "New." }, tool("new"), OFFICE[1] ?? {}];
  const changes = await catalog.add(tools, { server: "office" });
  assert.deepEqual([changes.added, changes.changed, changes.unchanged], [["office/new"], ["office/send_email"], 1]);
  const stats = await catalog.stats();
  assert.equal(stats.generation, changes.generation);
  assert.deepEqual([stats.tools, stats.servers, stats.pendingEmbeddings], [4, { office: 4 }, 0]);
  const synced = await catalog.sync("office", OFFICE.slice(0, 1));
  assert.deepEqual(synced.removed, ["office/create_event", "office/create_issue", "office/new"]);
});

test("embedding reports progress and ends when it is told", async () => {
  await using catalog = await Catalog.temporary();
  await catalog.add(many(500), { embed: false });
  const seen: [number, number][] = [];
  const stop = (done: number, total: number) => {
    seen.push([done, total]);
    if (done > 0) throw new RangeError("enough");
  };
  await assert.rejects(catalog.embed({ progress: stop }), /enough/);
  const [first, total] = seen[0] ?? [];
  assert.equal(first, 0);
  const leaving = new AbortController();
  const progress = () => leaving.abort(new Error("left"));
  await assert.rejects(catalog.embed({ signal: leaving.signal, progress }), /left/);
  // What was embedded is kept.
  const left = await catalog.embed();
  assert.ok(0 < left && left < (total ?? 0), `${left} of ${total}`);
  assert.equal((await catalog.stats()).pendingEmbeddings, 0);
});

test("an evaluation has figures", async () => {
  await using catalog = await office();
  const queries = [
    { id: "1", query: "report a bug", relevant: ["office/create_issue"] },
    { id: "2", query: "write a mail", relevant: ["office/send_email"] },
  ];
  const evaluation = await catalog.evaluate(queries);
  assert.equal(evaluation.metrics["recall@1"]?.mean, 1);
  assert.equal(evaluation.queries[0]?.answers[0]?.hits[0], "office/create_issue");
  const file = join(folder(), "queries.jsonl");
  writeFileSync(file, queries.map((query) => JSON.stringify(query)).join("\n"));
  assert.deepEqual((await catalog.evaluate(file)).metrics, evaluation.metrics);
  const wrong = catalog.evaluate([{ query: "x", relevant: ["office/nothing"] }], { mode: "lexical" });
  await assert.rejects(wrong, { code: "invalid_queries" });
});

test("a catalog stays, and two that are open have one state", async () => {
  const data = folder();
  {
    await using catalog = await Catalog.open(data, { name: "work", embedder: "table" });
    await catalog.add(OFFICE);
    assert.deepEqual([catalog.name, catalog.path], ["work", join(data, "catalogs", "work")]);
  }
  await using one = await Catalog.open(data, { name: "work", create: false });
  await using other = await Catalog.open(pathToFileURL(data), { name: "work" });
  assert.equal((await one.stats()).tools, 3);
  await other.add(tool("another"));
  assert.ok((await one.search("another")).ids.includes("another"));
  await assert.rejects(Catalog.open(data, { name: "nothing", create: false }), { code: "unknown_catalog" });
});

test("a temporary catalog leaves nothing", async () => {
  let path;
  {
    using catalog = await Catalog.temporary({ embedder: "none" });
    path = catalog.path;
    await catalog.add(OFFICE);
    assert.ok(existsSync(path));
    const results = await catalog.search("email");
    assert.deepEqual([results.mode, results.degraded], ["lexical", undefined]);
  }
  assert.ok(!existsSync(path));
});

test("writes wait for each other, and searches go on", async () => {
  await using catalog = await office();
  const writes = many(20).map((each) => catalog.add(each));
  const searches = Array.from({ length: 50 }, () => catalog.search("delete a playlist"));
  await Promise.all([...writes, ...searches]);
  assert.equal((await catalog.stats()).tools, 23);
});

test("worker threads have their own catalogs", async () => {
  const data = folder();
  await using catalog = await Catalog.open(data, { embedder: "table" });
  await catalog.add(OFFICE);
  const file = new URL("./searching.mjs", import.meta.url);
  writeFileSync(
    file,
    `import { parentPort, workerData } from "node:worker_threads";
    import { Catalog } from "toolscout";
    const catalog = await Catalog.open(workerData.data);
    parentPort.postMessage((await catalog.search(workerData.query)).ids[0]);`,
  );
  const ask = (query: string) =>
    new Promise((resolve, reject) => {
      new Worker(file, { workerData: { data, query } }).once("message", resolve).once("error", reject);
    });
  assert.deepEqual(await Promise.all([ask("send mail"), ask("open an issue")]), ["send_email", "create_issue"]);
});
