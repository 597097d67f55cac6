// The client before a real server, and before one that is played and fails.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

import { Catalog } from "toolscout";
import { ApiError, Client, ConnectionFailedError, type AgentEvent } from "toolscout/client";
import { z } from "zod";

import { OFFICE, end, folder, many, serve, tool } from "./fixtures.js";

let running: Awaited<ReturnType<typeof serve>>;
let client: Client;
before(async () => {
  const script = join(folder(), "model.jsonl");
  // One line for each question.
  writeFileSync(script, '{"reply": {"text": "The mail is on its way."}}\n');
  running = await serve(folder(), "--llm", `script:${script}`);
  client = new Client(running.url);
  await client.add(OFFICE, { server: "office" });
});
after(() => end(running.server));

async function list<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all = [];
  for await (const item of items) all.push(item);
  return all;
}

test("tools are written and found", async () => {
  const answer = await client.search("report a bug", { limit: 2, explain: true, format: "openai" });
  assert.equal(answer.hits[0]?.id, "office/create_issue");
  await client.feedback(answer, "office/create_issue");
  await client.add(JSON.stringify(tool("x")), { server: "a/b c" });
  assert.equal((await client.get("a/b c/x")).id, "a/b c/x");
  await client.remove("a/b c/x");
  await assert.rejects(client.get("a/b c/x"), (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.code, error.status, error.kind], ["unknown_tool", 404, "invalid_request"]);
    assert.ok(error.requestId);
    return true;
  });
});

test("the former names of options still work", async () => {
  const cases = [
    [{ k: 1 }, { limit: 1 }],
    [{ filter: { servers: ["office"] } }, { servers: "office" }],
    [{ filter: { ids: ["office/send_email"] } }, { ids: ["office/send_email"] }],
  ] as const;
  for (const [former, now] of cases) {
    const [before, after] = await Promise.all([client.search("mail", former as object), client.search("mail", now)]);
    assert.deepEqual(before.hits.map(({ id }) => id), after.hits.map(({ id }) => id));
  }
});

test("tools of every form are added as by the engine", async () => {
  await using catalog = await Catalog.temporary({ embedder: "table" });
  const file = join(folder(), "tools.json");
  writeFileSync(file, JSON.stringify([tool("one", "First."), tool("two", "Second.")]));
  const zod = { name: "forecast", description: "Tells.", inputSchema: z.object({ city: z.string() }) };
  const record = { weather: { description: "Tells.", inputSchema: z.object({ city: z.string() }), execute: () => "" } };
  for (const given of [zod, [zod, tool("three")], record, file, pathToFileURL(file), JSON.stringify(tool("four"))]) {
    await client.sync("forms", given);
    await catalog.sync("forms", given);
    const sent = (await list(client.tools({ server: "forms" }))).map(({ id, inputSchema }) => [id, inputSchema]);
    assert.deepEqual(sent, (await list(catalog.tools())).map(({ id, inputSchema }) => [id, inputSchema]));
    assert.ok(sent.length > 0);
  }
  await assert.rejects(client.add([() => 1]), /item 1, is a function/);
  await assert.rejects(client.add("nothing.json"), { code: "unreadable_tools" });
  await client.sync("forms", []);
});

test("tools are removed, one or several", async () => {
  await client.add([tool("a"), tool("b")], { server: "gone" });
  assert.deepEqual(await client.remove("gone/a"), { removed: ["gone/a"] });
  assert.deepEqual(await client.remove(["gone/a", "gone/b"]), { removed: ["gone/b"] });
  assert.deepEqual(await client.remove("gone/a"), { removed: [] });
});

test("queries of every form are evaluated", async () => {
  const line = JSON.stringify({ id: "1", query: "report a bug", relevant: ["office/create_issue"] });
  const file = join(folder(), "queries.jsonl");
  writeFileSync(file, line);
  for (const given of [line, file, pathToFileURL(file), new TextEncoder().encode(line)]) {
    assert.match(JSON.stringify((await client.evaluate(given)).evaluation), /recall@1/);
  }
});

test("feedback teaches, in client and engine", async () => {
  const text = "jot down what is broken";
  const answer = await client.search(text);
  assert.deepEqual(await client.feedback(answer, "office/create_issue"), { recorded: true, remembered: false });
  assert.deepEqual(await client.setMemory(true), { enabled: true });
  assert.equal((await client.feedback(answer, "office/create_issue")).remembered, true);
  assert.equal((await client.feedback(answer, "office/create_issue", { query: null })).remembered, false);
  assert.deepEqual((await list(client.memory())).map(({ query }) => query), [text]);
  assert.deepEqual(await client.forget({ query: text }), { forgotten: 1 });
  await client.setMemory(false);
  await using catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(OFFICE, { server: "office" });
  const results = await catalog.search(text, { limit: 3 });
  assert.equal((await catalog.feedback(results, "office/create_issue")).remembered, false);
  await catalog.setMemory(true);
  assert.equal((await catalog.feedback(results, "office/create_issue")).remembered, true);
  assert.deepEqual((await catalog.memory()).map(({ query }) => query), [text]);
  await assert.rejects(catalog.feedback(results, "office/nothing"), { code: "tool_not_in_answer" });
  assert.deepEqual(await catalog.forget(), { forgotten: 1 });
});

test("words and settings are those of the engine", async () => {
  await using catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(OFFICE, { server: "office" });
  for (const each of [client, catalog]) {
    const words = { aliases: { "office/send_email": ["postbote"] } };
    assert.deepEqual((await each.setWords(words)).words.aliases, words.aliases);
    const patched = await each.patchWords({ aliases: null, synonyms: { bug: { words: ["bug", "kaputt"] } } });
    assert.deepEqual(patched.words.synonyms?.bug?.words, ["bug", "kaputt"]);
    assert.equal((await each.setSettings({ k: 2, min_score: 0.1 } as never)).k, 2);
    await assert.rejects(each.setSettings({ k: 500 } as never), /500/);
    assert.equal((await each.servers()).find(({ name }) => name === "office")?.tools, 3);
  }
  assert.deepEqual(await client.settings(), await catalog.settings());
  await client.setSettings({} as never);
  await client.setWords({});
});

test("texts of tools are written, read and passed on", async () => {
  const id = "office/send_email";
  assert.deepEqual((await client.textsOf(id)).texts, []);
  const written = await client.setTexts(id, ["tell Ada by post"], "us");
  assert.deepEqual([written.texts, written.model], [["tell Ada by post"], "us"]);
  assert.deepEqual((await list(client.texts({ server: "office" }))).map((tool) => tool.id), [id]);
  assert.equal((await client.enrichState()).with_texts, 1);
  const questions = await client.questions({ limit: 1, languages: ["de", "zh"] });
  assert.match(questions, /German, Chinese/u);
  const line = questions.split("\n").find((each) => each.includes('"tool"')) ?? "";
  const { id: other, definition } = JSON.parse(line) as { id: string; definition: string };
  const answer = JSON.stringify({ id: other, definition, texts: ["somebody wants the third thing"] });
  assert.equal((await client.takeTexts(answer)).stored, 1);
  assert.equal((await client.measureTexts()).found_within, 5);
  assert.equal((await client.estimateEnrich({ limit: 1 })).tools, 1);
  assert.equal((await client.enrich({ limit: 1 })).done, 1);
  await client.deleteTexts(id);
  await client.deleteTexts(other);
  await assert.rejects(client.deleteTexts(id), { code: "no_texts" });
});

test("what only a server has", async () => {
  assert.ok((await client.stats()).tools >= 3);
  assert.deepEqual(await list(client.changes()), []);
  await assert.rejects(client.review({}), { code: "invalid_value" });
  assert.deepEqual(await list(client.keys()), []);
  await assert.rejects(client.key("nothing"), { status: 404 });
  assert.ok((await client.usage()).searches);
  const line = JSON.stringify({ query: "report a bug", relevant: ["office/create_issue"] });
  const { evaluation } = await client.evaluate(line);
  assert.ok((await client.evaluations()).some(({ id }) => id === evaluation.id));
  assert.equal((await client.evaluation(evaluation.id)).evaluation.id, evaluation.id);
  assert.deepEqual((await list(client.evaluationQueries(evaluation.id))).map(({ query }) => query), ["report a bug"]);
  await client.deleteEvaluation(evaluation.id);
});

test("a log is told of repetitions, and of what is not learnt", async () => {
  const told: string[] = [];
  const { options } = played(refused(), Response.json({ hits: [] }), Response.json({ recorded: true }));
  const log = (level: string, message: string) => told.push(`${level} ${message}`);
  const logged = new Client("http://played", { ...options, log });
  await logged.search("x");
  await logged.feedback({ feedback_token: "unknown", hits: [] } as never, "a");
  assert.match(told[0] ?? "", /^info POST .* is sent again: .*refused/);
  assert.match(told[1] ?? "", /^warn the text of the search is not known here/);
});

test("catalogs are created, listed and deleted", async () => {
  assert.equal((await client.createCatalog("team-a")).tools, 0);
  const team = new Client(running.url, { catalog: "team-a" });
  await team.add(OFFICE.slice(0, 2));
  assert.ok((await team.search("send a mail")).hits.length > 0);
  // Creating it again changes nothing.
  assert.equal((await client.createCatalog("team-a")).tools, 2);
  const names = async () => (await list(client.catalogs())).map(({ name }) => name);
  assert.ok((await names()).includes("team-a"));
  await client.deleteCatalog("team-a");
  assert.ok(!(await names()).includes("team-a"));
  await assert.rejects(client.deleteCatalog("team-a"), { code: "unknown_catalog", status: 404 });
});

test("answers are those of the engine", async () => {
  await using catalog = await Catalog.temporary({ embedder: "table" });
  await catalog.add(OFFICE, { server: "office" });
  for (const text of ["report a bug", "send", "enter a date", "nothing of it"]) {
    const { hits } = await client.search(text);
    const own = await catalog.search(text);
    assert.deepEqual(hits.map(({ id, score }) => [id, score]), own.hits.map(({ id, score }) => [id, score]));
  }
});

test("large loads and evaluations are waited for", async () => {
  await client.add(many(1200), { server: "many" });
  assert.equal((await list(client.tools({ server: "many" }))).length, 1200);
  await client.sync("many", []);
  const queries = [{ id: "1", query: "report a bug", relevant: ["office/create_issue"] }];
  const { evaluation } = await client.evaluate(queries);
  assert.match(JSON.stringify(evaluation), /recall@1/);
});

test("events of the agent", async () => {
  const events = await list(client.ask("Send a mail."));
  assert.equal(events.at(-1)?.type, "done");
  assert.ok(events.some((event) => event.type === "text"));
});

/** A server that answers in turn, and what it was asked. */
function played(...answers: (Response | Error)[]) {
  const requests: [string, RequestInit][] = [];
  const play = (input: unknown, init: RequestInit = {}) => {
    requests.push([String(input), init]);
    const answer = answers.shift() ?? new Error("asked once more");
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const options = { fetch: play as typeof fetch, key: "secret" };
  return { requests, options };
}

function failed(status: number, code: string, headers: Record<string, string> = {}): Response {
  const error = { code, message: "No.", type: "system", request_id: "r" };
  return Response.json({ error }, { status, headers });
}

function refused(): Error {
  return new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }) });
}

test("what is busy is asked again", async () => {
  const busy = failed(503, "overloaded", { "retry-after": "0.3" });
  const { requests, options } = played(busy, refused(), Response.json({ hits: [] }));
  const start = performance.now();
  assert.deepEqual((await new Client("http://played/", options).search("x")).hits, []);
  assert.ok(performance.now() - start >= 300);
  assert.equal(requests.length, 3);
  assert.equal((requests[0]?.[1].headers as Record<string, string>).Authorization, "Bearer secret");
});

test("it is not asked for ever", async () => {
  const busy = played(failed(503, "overloaded"), failed(503, "overloaded"));
  const few = new Client("http://played", { ...busy.options, retries: 1 });
  await assert.rejects(few.search("x"), { code: "overloaded", kind: "system", status: 503 });
  const later = played(failed(429, "too_many", { "retry-after": "3600" }));
  await assert.rejects(new Client("http://played", later.options).search("x"), { retryAfter: 3600 });
  const none = played(refused(), refused());
  const lost = new Client("http://played", { ...none.options, retries: 1 }).search("x");
  await assert.rejects(lost, (error) => error instanceof ConnectionFailedError && /refused/.test(error.message));
  const slow = new Client(running.url, { timeoutMs: 1, retries: 0 });
  await assert.rejects(slow.search("x"), { code: "connection_failed" });
});

test("a call is not repeated, unless it was not even received", async () => {
  for (const failure of [new TypeError("lost"), failed(503, "overloaded")]) {
    const { requests, options } = played(failure);
    await assert.rejects(new Client("http://played", options).call("a"));
    assert.equal(requests.length, 1);
  }
  const { options } = played(refused(), Response.json({ outcome: "done" }));
  assert.deepEqual(await new Client("http://played", options).call("a"), { outcome: "done" });
});

test("other servers are told apart, and signals end a request", async () => {
  const { options } = played(new Response("<html>"), new Response("<html>", { status: 404 }));
  const other = new Client("http://played", options);
  await assert.rejects(other.search("x"), /is it a toolscout server/);
  await assert.rejects(other.search("x"), { code: "unreadable_answer", status: 404 });
  await assert.rejects(client.search("x", {}, AbortSignal.abort()), { name: "AbortError" });
});

test("a lost stream goes on", async () => {
  const seen: AgentEvent[] = [
    { type: "tool_search", id: "1", queries: ["mail"], hits: ["a"] } as never,
    { type: "text", content: "The mail " },
  ];
  const stream = () => {
    const bytes = seen.map((event) => `id: 1\ndata: ${JSON.stringify(event)}\n\n: beat\n\n`).join("");
    // In two pieces, within an event.
    const pieces = [bytes.slice(0, 20), bytes.slice(20)].map((piece) => new TextEncoder().encode(piece));
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        const piece = pieces.shift();
        if (piece) controller.enqueue(piece);
        else controller.error(new TypeError("lost"));
      },
    });
    return new Response(body, { headers: { "x-conversation-id": "c" } });
  };
  const turn = { number: 2, answer: "The mail is sent.", status: "answered", figures: {} };
  const running = (is: boolean) => Response.json({ id: "c", running: is, turns: [turn] });
  const kept = Response.json({ events: [seen[0], { type: "tool_result", id: "2", content: "sent" }, { type: "done" }] });
  const { requests, options } = played(stream(), running(true), running(false), kept);
  const events = await list(new Client("http://played", options).ask("q"));
  assert.deepEqual(events.map(({ type }) => type), ["tool_search", "text", "tool_result", "text", "done"]);
  assert.deepEqual(events[3], { type: "text", content: "is sent." });
  assert.match(requests.at(-1)?.[0] ?? "", /\/v1\/agent\/conversations\/c\/turns\/2\/events$/);
  const once = played(stream());
  const left = list(new Client("http://played", once.options).ask("q", { resume: false }));
  await assert.rejects(left, /the connection was lost/);
  await sleep(0);
});

test("the client needs nothing of Node", () => {
  const installed = fileURLToPath(new URL("../../node_modules/toolscout/dist/", import.meta.url));
  // What is loaded on use needs nothing of it either.
  const later = ["./checks.js", "./definitions.js", "./errors.js", "./zod3.js"];
  for (const name of ["bodies", "checks", "definitions", "zod3"]) {
    const text = readFileSync(join(installed, `${name}.js`), "utf8");
    assert.ok([...text.matchAll(/ from "([^"]+)"/g)].every(([, from]) => later.includes(from ?? "")), name);
  }
  for (const name of ["client", "events", "errors"]) {
    const text = readFileSync(join(installed, `${name}.js`), "utf8");
    const imported = [...text.matchAll(/from "([^"]+)"/g)].map(([, from]) => from);
    assert.ok(imported.every((from) => from === "./errors.js" || from === "./events.js"), `${name}: ${imported}`);
  }
});
