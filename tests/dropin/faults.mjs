/** What goes wrong at the provider, and which error of the SDK it ends in. */

import assert from "node:assert/strict";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { python } from "./sdks.mjs";
import { Server, until } from "./server.mjs";
import { conversation } from "./ways.mjs";

const TYPESCRIPT = ["chat.completions.create", "chat.completions.create, stream", "responses.create", "responses.create, stream", "messages.create", "messages.create, stream"];
const PYTHON = ["chat.completions.create", "chat.completions.create, stream, async", "responses.create, async", "responses.create, stream", "messages.create, async", "messages.create, stream"];
const STATUS = { 401: "AuthenticationError", 429: "RateLimitError", 500: "InternalServerError" };

/** In the first round, which searches, nothing was told to the client yet; in the next one a stream has begun. */
const FAULTS = [401, 429, 500, "cut", "malformed"].flatMap((kind) => ["search", "call"].map((round) => ({ kind, in: round })));

function question(tools, name, fault) {
  const { name: called, need } = tools[70];
  const calls = [{ name: called, arguments: { title: "a", notes: "b" }, need }];
  return asking("Please.", { conversation: name, steps: [{ say: "A moment.", calls }], answer: "Done.", fault });
}

/** An error, in words: its class, those it belongs to, and its status. */
function told(error) {
  const kinds = [];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) kinds.push(kind.name);
  return { error: kinds[0], kinds, status: error.status ?? null, message: error.message };
}

function check(fault, streams, seen, where) {
  const what = `${where}: ${JSON.stringify(seen)}`;
  assert(seen.error, `${where} was answered: ${JSON.stringify(seen)}`);
  // Within a stream that has begun, whose status was 200, or that was cut off.
  if (streams && (fault.in === "call" || !STATUS[fault.kind])) return assert(seen.kinds.some((kind) => ["APIError", "ResponseErrorEvent"].includes(kind)), what);
  assert.equal(seen.error, STATUS[fault.kind] ?? "InternalServerError", what);
  assert.equal(seen.status, STATUS[fault.kind] ? fault.kind : 502, what);
  if (STATUS[fault.kind]) assert.match(seen.message, new RegExp(`scripted ${fault.kind}`), what);
}

async function inTypeScript({ provider, server, tools }) {
  const kinds = new Set();
  for (const way of TYPESCRIPT) {
    for (const fault of FAULTS) {
      const where = `${way}, ${fault.kind} in ${fault.in}`;
      const held = conversation(way, server.url, tools, KEY);
      const asked = question(tools, `fault ${where}`, { ...fault, times: 1 });
      const seen = await held.answers([asked]).then((answers) => ({ answers }), told);
      check(fault, way.includes("stream"), seen, where);
      kinds.add(seen.error);
      // Asked again, it goes on as if nothing had been.
      held.messages.length = 0;
      const [answer] = await held.answers([asked]);
      assert.match(answer, /^Done. I saw: /, where);
    }
  }
  provider.complaints.length = 0;
  return `${TYPESCRIPT.length * FAULTS.length} faults: ${[...kinds].join(", ")}`;
}

async function inPython(world) {
  const cases = PYTHON.flatMap((mode) => FAULTS.map((fault) => ({ mode, fault, questions: [question(world.tools, `Python fault ${mode} ${fault.kind} ${fault.in}`, fault)] })));
  const seen = await python(world, cases);
  for (const [index, { mode, fault }] of cases.entries()) check(fault, mode.includes("stream"), seen[index], `${mode}, ${fault.kind} in ${fault.in}`);
  return `${cases.length} faults: ${[...new Set(seen.map(({ error }) => error))].join(", ")}`;
}

/** The SDKs try again by themselves, after the time that the provider names. */
async function triedAgain({ provider, server, tools }) {
  for (const way of TYPESCRIPT) {
    const begun = Date.now();
    const name = `retry ${way}`;
    const [answer] = await conversation(way, server.url, tools, KEY, { maxRetries: 2 }).answers([question(tools, name, { kind: 429, in: "search", times: 1 })]);
    assert.match(answer, /^Done. I saw: /);
    assert(Date.now() - begun >= 1000, `${way}: it did not wait as long as Retry-After says`);
    assert.equal(provider.conversation(name).map(({ round }) => round).join(" "), "search search call answer");
  }
}

/** The client waits no longer than it wants to, and the provider is told. */
async function tooSlow({ provider, server, tools }) {
  const kinds = new Set();
  for (const way of TYPESCRIPT) {
    const leaving = (address, request) => fetch(address, { ...request, signal: AbortSignal.timeout(700) });
    const held = conversation(way, server.url, tools, KEY, way.includes("stream") ? { fetch: leaving } : { timeout: 700 });
    const seen = await held.answers([question(tools, `slow ${way}`, { kind: "slow", in: "call" })]).then((answers) => ({ answers }), told);
    assert(seen.error, `${way}: ${JSON.stringify(seen)}`);
    kinds.add(seen.error);
    await until(() => provider.open === 0, 5_000);
  }
  return [...kinds].join(", ");
}

/** The provider says nothing more, before an answer or within it, for longer than the server waits. */
async function silent({ provider, tools, toolsFile }) {
  const server = await Server.start(provider.url, { more: ["--llm-wait", "1"] });
  const faults = ["slow", "stall"].flatMap((kind) => ["search", "call"].map((round) => ({ kind, in: round })));
  const asked = (language, way, fault) => [question(tools, `silent ${language} ${way} ${fault.kind} ${fault.in}`, fault)];
  try {
    // One after the other, each waiting: of the four, the first and the last.
    const cases = PYTHON.flatMap((mode) => [faults[0], faults[3]].map((fault) => ({ mode, questions: asked("Python", mode, fault), fault })));
    const seen = await python({ provider, server, toolsFile }, cases);
    const held = (way, fault) => conversation(way, server.url, tools, KEY).answers(asked("TypeScript", way, fault)).then((answers) => ({ answers }), told);
    for (const way of TYPESCRIPT) seen.push(...(await Promise.all(faults.map((fault) => held(way, fault)))));
    const ways = [...cases.map(({ mode, fault }) => [mode, fault]), ...TYPESCRIPT.flatMap((way) => faults.map((fault) => [way, fault]))];
    for (const [index, [way, fault]] of ways.entries()) {
      const what = `${way}, ${fault.kind} in ${fault.in}: ${JSON.stringify(seen[index])}`;
      const begun = way.includes("stream") && (fault.in === "call" || fault.kind === "stall");
      assert(seen[index].kinds?.some((kind) => ["APIError", "ResponseErrorEvent"].includes(kind)), what);
      assert(begun || seen[index].status === 504, what);
    }
    await until(() => provider.open === 0, 5_000);
    return `${ways.length} silences: ${[...new Set(seen.map(({ error }) => error))].join(", ")}`;
  } finally {
    await server.end();
  }
}

async function down({ tools, toolsFile, provider }) {
  // Nobody listens on the discard port.
  const server = await Server.start("http://127.0.0.1:9");
  try {
    const seen = await python({ provider, server, toolsFile }, PYTHON.map((mode) => ({ mode, questions: [question(tools, "down")] })));
    for (const way of TYPESCRIPT) seen.push(await conversation(way, server.url, tools, KEY).answers([question(tools, "down")]).then((answers) => ({ answers }), told));
    for (const one of seen) assert.deepEqual([one.error, one.status], ["InternalServerError", 502], JSON.stringify(one));
  } finally {
    await server.end();
  }
}

export const faults = {
  "faults, TypeScript": inTypeScript,
  "faults, Python": inPython,
  "faults: the SDK tries again": triedAgain,
  "faults: too slow": tooSlow,
  "faults: the provider is silent": silent,
  "faults: the provider is down": down,
};
