// What is wrong is named, and nothing else happens.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Catalog, ToolscoutError, type SearchOptions } from "toolscout";

import { OFFICE, folder, many, runScript, tool } from "./fixtures.js";

let catalog: Catalog;
before(async () => {
  catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(OFFICE, { server: "office" });
});
after(() => catalog.close());

async function failsWith(call: Promise<unknown>, code: string, text: RegExp): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof ToolscoutError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, text);
    return true;
  });
}

const wrongTools: [string | object, string, RegExp][] = [
  [[{ description: "no name" }], "invalid_tool", /item 1/],
  [[tool("a"), { name: "" }], "invalid_tool", /item 2/],
  [[tool("a"), tool("a")], "invalid_tool", /a/],
  [[tool("a"), 7], "invalid_tool", /item 2/],
  [[null], "invalid_tool", /item 1/],
  ["{", "unreadable_tools", /tools/],
  ["", "unreadable_tools", /empty/],
  ["no/such/file.json", "unreadable_tools", /no such file/],
  [{ name: "a".repeat(600) }, "invalid_tool", /512/],
  [{ mcpServers: { files: { command: "x" } } }, "unreadable_tools", /files/],
  [[{ name: "a\ud800" }], "invalid_tool", /item 1/],
];

test("tools that are none are named", async () => {
  for (const [tools, code, text] of wrongTools) await failsWith(catalog.add(tools), code, text);
  assert.equal((await catalog.stats()).tools, 3);
});

test("wrong types are type errors", async () => {
  const add = catalog.add.bind(catalog) as (tools: unknown, options?: unknown) => Promise<unknown>;
  for (const tools of [undefined, null, 7, true, Symbol("x"), () => 1, [undefined], [() => 1], [{ n: 1n }]]) {
    await assert.rejects(add(tools), TypeError);
  }
  await assert.rejects(add(OFFICE, { servr: "x" }), /add has no option "servr"/);
  const search = catalog.search.bind(catalog) as (query: unknown, options?: unknown) => Promise<unknown>;
  for (const query of [undefined, null, 7, { q: "x" }, ["x", 7]]) {
    await assert.rejects(search(query), /query must be a string or a list of strings/);
  }
  for (const options of [{ limit: "5" }, { servers: 7 }, { readOnly: "yes" }, { mode: 7 }, { k: 5 }]) {
    const message = new RegExp(Object.keys(options)[0] ?? "");
    await assert.rejects(search("x", options), { name: "TypeError", message });
  }
});

test("arguments of wrong types are named", async () => {
  const any = <T>(value: unknown) => value as T;
  const seven = any<never>(7);
  const results = await catalog.search("email");
  const calls: [() => unknown, string][] = [
    [() => Catalog.open(seven), "path must be a string or URL, not number"],
    [() => Catalog.open("x", seven), "options must be an object, not number"],
    [() => Catalog.open("x", { name: seven }), "name must be a string, not number"],
    [() => Catalog.open("x", { config: seven }), "config must be a string or URL, not number"],
    [() => Catalog.open("x", { create: seven }), "create must be a boolean, not number"],
    [() => Catalog.temporary({ embedder: seven }), "embedder must be a string, not number"],
    [() => catalog.add(OFFICE, { server: seven }), "server must be a string or null, not number"],
    [() => catalog.add(OFFICE, { skipInvalid: any("yes") }), "skipInvalid must be a boolean, not string"],
    [() => catalog.add(OFFICE, { embed: any(null) }), "embed must be a boolean, not null"],
    [() => catalog.add(OFFICE, { progress: seven }), "progress must be a function or null, not number"],
    [() => catalog.add(OFFICE, { signal: seven }), "signal must be an object or null, not number"],
    [() => catalog.sync(seven, OFFICE), "server must be a string, not number"],
    [() => catalog.sync("office", seven), "tools must be an object,"],
    [() => catalog.remove(seven), "ids must be a string or a list of strings, not number"],
    [() => catalog.search("x", { limit: any("5") }), 'limit must be a number, not string: "5"'],
    [() => catalog.search("x", { mode: seven }), "mode must be a string, not number"],
    [() => catalog.search("x", { readOnly: any([]) }), "readOnly must be a boolean, not a list"],
    [() => catalog.evaluate(seven), "queries must be a list of objects,"],
    [() => catalog.evaluate([], { mode: seven }), "mode must be a string or null, not number"],
    [() => catalog.evaluate([], { ranker: seven }), "ranker must be a boolean, not number"],
    [() => catalog.tools({ tags: seven }).next(), "tags must be a string or a list of strings, not number"],
    [() => catalog.get(seven), "id must be a string, not number"],
    [() => results.tools(seven), "format must be a string, not number"],
    [() => results.tools("mcp", { maxTokens: any("5") }), "maxTokens must be a number or null, not string"],
    [() => results.hits[0]?.tool.to(seven), "format must be a string, not number"],
  ];
  for (const [call, text] of calls) {
    await assert.rejects(
      async () => call(),
      (error) => error instanceof TypeError && error.message.startsWith(text),
      text,
    );
  }
});

const wrongQueries: [string | string[], SearchOptions, RegExp][] = [
  ["", {}, /empty/],
  [["", " "], {}, /empty/],
  [[], {}, /empty/],
  [Array<string>(17).fill("x"), {}, /16/],
  ["x", { limit: 0 }, /limit is 0, it must be a whole number from 1 to 50/],
  ["x", { limit: 1.5 }, /limit is 1.5/],
  ["x", { limit: 51 }, /limit is 51/],
  ["x", { limit: NaN }, /limit is NaN/],
  ["x", { mode: "fast" as never }, /unknown mode "fast"/],
  ["x", { fusion: "sum" as never }, /unknown fusion/],
  ["x", { budgetMs: 0 }, /above 0/],
  ["x", { denseWeight: 2 }, /from 0 to 1/],
  ["x", { minConfidence: NaN }, /from 0 to 1/],
  ["x", { minScore: NaN }, /a number/],
];

test("queries that are none are named", async () => {
  for (const [query, options, text] of wrongQueries) {
    await failsWith(catalog.search(query, options), "invalid_query", text);
  }
});

test("invalid items can be left out", async () => {
  await using other = await Catalog.temporary({ embedder: "none" });
  const changes = await other.add([tool("a"), { nome: "b" }, tool("c")], { skipInvalid: true });
  assert.deepEqual(changes.added, ["a", "c"]);
  assert.equal(changes.skipped[0]?.position, 2);
});

test("a file that is not there is no invalid item", async () => {
  for (const skipInvalid of [false, true]) {
    await failsWith(catalog.add("nope.json", { skipInvalid }), "unreadable_tools", /nope.json: no such file/);
  }
});

test("positions and ids are those of the whole input", async () => {
  const tools: object[] = many(1500);
  const broken = [...tools.slice(0, 1250), { nome: "x" }, ...tools.slice(1250)];
  await failsWith(catalog.add(broken), "invalid_tool", /item 1251:/);
  await failsWith(catalog.add([...tools, tools[0] ?? {}]), "invalid_tool", /occurs twice/);
  assert.equal((await catalog.stats()).tools, 3);
});

test("a list that throws adds nothing", async () => {
  function* tools() {
    yield* many(1200);
    throw new RangeError("the source ended");
  }
  await assert.rejects(catalog.add(tools()), /the source ended/);
  const cycle: Record<string, unknown> = { name: "cycle" };
  cycle.self = cycle;
  await assert.rejects(catalog.add(cycle), TypeError);
  let deep: object = {};
  for (let level = 0; level < 100_000; level++) deep = { properties: deep };
  await assert.rejects(catalog.add({ name: "deep", inputSchema: deep }), RangeError);
  assert.equal((await catalog.stats()).tools, 3);
});

test("a write within the list of another is made before it", async () => {
  await using other = await Catalog.temporary({ embedder: "none" });
  async function* tools() {
    await other.add(tool("b"));
    yield tool("a");
  }
  await other.add(tools());
  assert.equal((await other.stats()).tools, 2);
});

test("a list of ten million is refused in bounded memory", () => {
  const done = runScript(`
    const catalog = await Catalog.temporary({ embedder: "none" });
    const before = process.memoryUsage.rss();
    function* endless() { for (let n = 0; n < 10_000_000; n++) yield { nome: n }; }
    await catalog.add(endless()).catch((error) => console.log(error.code));
    console.log((await catalog.stats()).tools, (process.memoryUsage.rss() - before) >> 20 < 100);`);
  assert.deepEqual(done.stdout.trim().split(/\s+/), ["invalid_tool", "0", "true"], done.stderr);
});

test("long queries and odd texts are searched", async () => {
  for (const text of ["mail ".repeat(100_000), "\0", "\u202e", "📧", "a".repeat(100_000), "\ud800"]) {
    assert.equal((await catalog.search(text)).mode, "hybrid");
  }
  const results = await catalog.search("email");
  assert.throws(() => results.tools("xml" as never), { code: "invalid_query" });
  assert.throws(() => results.tools("openai", { maxTokens: 1 }), /maxTokens is 1/);
});

test("a closed catalog says so", async () => {
  const other = await Catalog.temporary({ embedder: "none" });
  await other.add(OFFICE);
  const begun = other.tools();
  await begun.next();
  await Promise.all([other.close(), other.close()]);
  assert.ok(other.closed);
  const calls = [
    () => other.search("x"),
    () => other.add(OFFICE),
    () => other.stats(),
    () => other.embed(),
    () => other.tools().next(),
    () => other.get("x"),
  ];
  for (const call of calls) await failsWith(call(), "catalog_closed", /closed/);
  // What was begun before has what it needs.
  assert.equal((await begun.next()).value?.id, "create_issue");
});

test("settings and files that are wrong are named", async () => {
  const config = join(folder(), "config.toml");
  writeFileSync(config, "[search]\nk = 500\n");
  const data = folder();
  await failsWith(Catalog.open(data, { config }), "invalid_settings", /search\.k is 500/);
  await failsWith(Catalog.open(data, { embedder: "nothing" }), "invalid_settings", /unknown embedder "nothing"/);
  await failsWith(Catalog.open(data, { name: "../x" }), "invalid_catalog_name", /x/);
  await failsWith(Catalog.open(config), "io_failed", /./);
  const damaged = await Catalog.open(data, { embedder: "none" });
  await damaged.add(OFFICE);
  await damaged.close();
  writeFileSync(join(damaged.path, "tools.db"), "not a database".repeat(1000));
  await failsWith(Catalog.open(data), "store_unusable", /tools\.db cannot be used/);
});

test("a process ends while it searches and embeds", () => {
  for (const [code, status] of [["", 0], ["process.exit(3);", 3], ["throw new Error('enough');", 1]] as const) {
    const done = runScript(`
      const catalog = await Catalog.temporary();
      await catalog.add(many(100), { embed: false });
      catalog.embed().catch(() => {});
      for (let n = 0; n < 8; n++) catalog.search("create an invoice").catch(() => {});
      await catalog.search("create an invoice");
      ${code}`);
    assert.deepEqual([done.signal, done.status], [null, status], done.stderr);
  }
  const done = runScript(`
    import { existsSync } from "node:fs";
    const catalog = await Catalog.temporary({ embedder: "none" });
    process.on("exit", () => console.log(existsSync(catalog.path)));
    process.exit(0);`);
  assert.equal(done.stdout, "false\n", done.stderr);
});

test("a worker thread is terminated while it searches and embeds", () => {
  const done = runScript(`
    import { Worker } from "node:worker_threads";
    import { writeFileSync } from "node:fs";
    writeFileSync("terminated.mjs", \`
      import { parentPort } from "node:worker_threads";
      import { Catalog } from "toolscout";
      import { many } from "./fixtures.js";
      const catalog = await Catalog.temporary();
      await catalog.add(many(300), { embed: false });
      catalog.embed({ progress: () => parentPort.postMessage(0) });
      for (;;) await Promise.all(Array.from({ length: 8 }, () => catalog.search("create an invoice")));\`);
    for (let n = 0; n < 3; n++) {
      const worker = new Worker("./terminated.mjs", { execArgv: [] });
      await new Promise((resolve) => worker.once("message", resolve));
      await worker.terminate();
    }
    const catalog = await Catalog.temporary({ embedder: "table" });
    await catalog.add(many(20));
    console.log((await catalog.search("create an invoice")).ids[0]);`);
  assert.equal(done.stdout, "create_invoice\n", `${done.signal} ${done.stderr}`);
});

test("Ctrl-C while embedding keeps what was embedded", () => {
  const open = `const catalog = await Catalog.open(${JSON.stringify(folder())});`;
  const killed = runScript(`${open}
    await catalog.add(many(500), { embed: false });
    await catalog.embed({ progress: (done) => done > 0 && process.kill(process.pid, "SIGINT") });`);
  assert.equal(killed.signal, "SIGINT", killed.stderr);
  const done = runScript(`${open}
    const left = await catalog.embed();
    console.log((await catalog.stats()).tools, 0 < left && left < 1000);`);
  assert.equal(done.stdout, "500 true\n", done.stderr);
});

test("searches do not keep memory", (context) => {
  const searches = Number(process.env.TOOLSCOUT_SEARCHES ?? 2000);
  const done = runScript(`
    const catalog = await Catalog.temporary({ embedder: "table" });
    await catalog.add(many(100));
    const texts = ["create an invoice", "delete a photo", "list tickets", "nothing of this"];
    async function work(count) {
      for (let n = 0; n < count; n++) {
        const results = await catalog.search(texts[n % texts.length], { explain: true });
        results.tools("openai");
        JSON.stringify(results);
        for (const hit of results) hit.tool.to("signature");
        await catalog.search("").catch(() => {});
      }
      gc();
      await new Promise(setImmediate);
      gc();
    }
    await work(2000);
    const before = process.memoryUsage.rss();
    await work(${searches});
    console.log(Math.round((process.memoryUsage.rss() - before) / 1024));`);
  const grown = Number(done.stdout);
  context.diagnostic(`${grown} KiB more after ${searches} searches`);
  assert.ok(done.status === 0 && grown < 24 * 1024, `${grown} KiB ${done.stderr}`);
});
