// The toolbox of a conversation: what is visible, what goes, and what is stored.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Catalog, Toolbox, type Policy, type ToolFormat } from "toolscout";

import { many, tool } from "./fixtures.js";

let catalog: Catalog;
before(async () => {
  catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(many(500));
});
after(() => catalog.close());

const names = (tools: object[]) => tools.map((each) => (each as { function: { name: string } }).function.name);

test("a search shows what it finds", async () => {
  const toolbox = new Toolbox(catalog, { budget: 8000, policy: "lru", limit: 3 });
  assert.deepEqual(names(toolbox.tools("openai")), ["tool_search"]);
  const answer = JSON.parse(await toolbox.searchTool().call({ query: "export a playlist" })) as { loaded: { name: string }[] };
  assert.equal(answer.loaded[0]?.name, "export_playlist");
  assert.equal(toolbox.names.length, 3);
  assert.deepEqual(names(toolbox.tools()), ["tool_search", ...toolbox.names]);
  assert.match(String(await toolbox.call("tool_search", '{"query": "export a playlist"}')), /already_visible/);
  assert.ok(toolbox.find("export_playlist"));
  assert.ok(toolbox.tokens > 0 && toolbox.tokens < 8000);
});

test("the search has a definition in every format", async () => {
  const toolbox = new Toolbox(catalog);
  await toolbox.inject("export_playlist");
  const formats: ToolFormat[] = ["openai", "openai_responses", "anthropic", "anthropic_reference", "signature"];
  for (const format of formats) {
    const tools = toolbox.tools(format as "openai");
    assert.deepEqual(tools[0], toolbox.searchTool().to(format));
    assert.match(JSON.stringify(tools[1]), /export_playlist/);
    assert.equal(toolbox.tools(format as "openai", { search: false }).length, 1);
  }
});

test("every prompt begins as the one before until tools go", async () => {
  const toolbox = new Toolbox(catalog, { budget: 400 });
  let before = names(toolbox.tools());
  let evictions = 0;
  for (const query of ["create an invoice", "rename a photo", "share a novel", "count the rockets"]) {
    toolbox.beginTurn();
    const { evicted } = await toolbox.search({ query, limit: 3 });
    const after = names(toolbox.tools());
    if (evicted.length === 0) assert.deepEqual(after.slice(0, before.length), before);
    evictions += evicted.length;
    assert.ok(toolbox.tokens <= 400);
    before = after;
    toolbox.endTurn();
  }
  assert.ok(evictions > 0);
});

test("the policy chooses what goes", async () => {
  const three = ["list_photo", "create_photo", "delete_photo"];
  const measured = new Toolbox(catalog);
  await measured.inject(three);
  const cases: [Policy, string | undefined][] = [["lru", "list_photo"], ["lfu", "create_photo"], ["none", undefined]];
  for (const [policy, gone] of cases) {
    const toolbox = new Toolbox(catalog, { budget: measured.tokens + 10, policy });
    toolbox.beginTurn();
    await toolbox.inject(three);
    for (const name of ["list_photo", "delete_photo", "list_photo", "delete_photo", "create_photo"]) {
      await toolbox.calling(name, () => undefined);
    }
    toolbox.beginTurn();
    const { evicted, refused } = await toolbox.inject("share_novel");
    assert.equal(evicted[0], gone);
    if (gone === undefined) assert.equal(refused[0]?.[0], "share_novel");
    else await assert.rejects(toolbox.calling(gone, () => 1), { code: "unknown_tool", message: /was unloaded/ });
  }
});

test("tools are pinned, injected and evicted", async () => {
  const toolbox = new Toolbox(catalog, { budget: 300 });
  await toolbox.pin("create_invoice");
  const hits = await catalog.search("copy a photo", { limit: 2 });
  assert.deepEqual((await toolbox.inject(hits)).added, hits.ids);
  assert.deepEqual((await toolbox.inject(hits.hits[0]!)).already, [hits.ids[0]]);
  assert.deepEqual(toolbox.evict([hits.hits[0]!.tool, "create_invoice", "nothing"]), [hits.ids[0]]);
  assert.deepEqual(toolbox.ids, ["create_invoice", hits.ids[1]]);
  await assert.rejects(toolbox.inject("create_invoce"), { code: "unknown_tool", message: /create_invoice/ });
});

test("a state is stored and restored", async () => {
  await using own = await Catalog.temporary({ embedder: "table" });
  await own.add(many(20));
  const toolbox = new Toolbox(own, { budget: 500, policy: "lfu" });
  await toolbox.pin("list_invoice");
  toolbox.beginTurn();
  await toolbox.inject(["copy_invoice", "share_invoice"]);
  toolbox.endTurn();
  const state = toolbox.state();
  for (const stored of [state, JSON.stringify(state)]) {
    const again = Toolbox.fromState(own, stored);
    assert.deepEqual(again.tools("openai"), toolbox.tools("openai"));
    assert.deepEqual(again.state(), state);
  }
  await own.remove(["copy_invoice", "list_invoice"]);
  const less = Toolbox.fromState(own, state);
  assert.deepEqual(less.missing, ["list_invoice", "copy_invoice"]);
  assert.deepEqual(less.names, ["share_invoice"]);
  for (const broken of ["no JSON", "{}", JSON.stringify({ ...state, version: 2 })]) {
    assert.throws(() => Toolbox.fromState(own, broken), { code: "invalid_toolbox" });
  }
});

test("functions are called", async () => {
  await using own = await Catalog.temporary({ embedder: "table" });
  const inputSchema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
  const twice = { name: "twice", description: "Doubles.", inputSchema };
  await own.add([tool("add", "Adds."), tool("other", "Nobody says how."), twice], { server: "own" });
  const functions = {
    add: async ({ a, b = 1 }: { a: number; b?: number }) => Promise.resolve(a + b),
    twice: ({ n }: { n: number }) => 2 * n,
  };
  const toolbox = new Toolbox(own, { functions });
  await toolbox.inject(["add", "own/other", "twice"]);
  assert.equal(await toolbox.call("own__twice", { n: 2 }), 4);
  assert.equal(await toolbox.call("own__add", '{"a": 2}'), 3);
  assert.equal(await toolbox.call("own/add", { a: 2, b: 5 }), 7);
  const failures: [string, string | object, string][] = [
    ["own__other", {}, "no_function"],
    ["nothing", {}, "unknown_tool"],
    ["own__add", "{", "invalid_arguments"],
    ["own__add", "[1]", "invalid_arguments"],
    ["own__twice", "{}", "invalid_arguments"],
    ["own__twice", { n: "2" }, "invalid_arguments"],
  ];
  for (const [name, args, code] of failures) await assert.rejects(toolbox.call(name, args), { code });
});

test("searches that are none are answered, and options are checked", async () => {
  const toolbox = new Toolbox(catalog);
  const searches: [object | string, RegExp][] = [
    [{}, /the search is empty/],
    [{ query: "x", limit: 0 }, /`limit` is 0/],
    ["[]", /no JSON object/],
    ["{", /no JSON/],
  ];
  for (const [args, text] of searches) assert.match(String(await toolbox.call("tool_search", args)), text);
  const wrong: [object, RegExp][] = [
    [{ budget: 0 }, /budget is 0, it must be 1 or more/],
    [{ budget: "8000" }, /budget must be a number/],
    [{ policy: "fifo" }, /policy is "fifo", it must be lru, lfu or none/],
    [{ idleTurns: 1.5 }, /idleTurns is 1.5/],
    [{ limit: 51 }, /limit is 51, it must be from 1 to 50/],
    [{ moreTools: 51 }, /more_tools is 51, it must be from 0 to 50/],
    [{ budgt: 1 }, /no option "budgt"/],
  ];
  for (const [options, text] of wrong) assert.throws(() => new Toolbox(catalog, options), { message: text });
  assert.throws(() => new Toolbox({} as never), /catalog must be a Catalog/);
});
