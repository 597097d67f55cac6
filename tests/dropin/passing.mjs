/** What passes as it is, and what the model must see in the cases that are not plain. */

import assert from "node:assert/strict";
import { questions } from "./conversation.mjs";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { DIALECTS } from "./dialects.mjs";
import { Server } from "./server.mjs";
import { SHAPES } from "./tools.mjs";
import { conversation } from "./ways.mjs";

const HEADERS = {
  chat: { authorization: `Bearer ${KEY}` },
  responses: { authorization: `Bearer ${KEY}` },
  messages: { "x-api-key": KEY, "anthropic-version": "2023-06-01" },
};
const WAY_OF = { chat: "chat.completions.create", responses: "responses.create", messages: "messages.create" };
const wanted = ({ name, need }, given = { title: "a", notes: "b" }) => ({ name, arguments: given, need });

/** A body as a client may write it; `more` are further fields. */
function body(dialect, content, tools, more = {}) {
  const message = { role: "user", content };
  const history = dialect === "responses" ? { input: [message] } : { messages: [message] };
  return { ...(dialect === "messages" && { max_tokens: 100 }), model: "m", ...history, tools, ...more };
}

async function send({ provider, server }, dialect, text, headers = {}) {
  const sent = [];
  provider.watch = (received) => sent.push(received);
  try {
    const response = await fetch(`${(server ?? provider).url}${DIALECTS[dialect].path}`, { method: "POST", headers: { "content-type": "application/json", ...HEADERS[dialect], ...headers }, body: text });
    return { status: response.status, headers: response.headers, answer: await response.json(), sent };
  } finally {
    provider.watch = null;
  }
}

const dialects = (check) => async (world) => {
  for (const dialect of Object.keys(DIALECTS)) {
    await check(world, dialect).catch((error) => {
      throw new Error(`${dialect}: ${error.message}`, { cause: error });
    });
  }
};

/** A short list of tools: not a byte is changed, odd spaces and the order of keys included. */
async function short(world, dialect) {
  const image = { chat: { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }, responses: { type: "input_image", image_url: "data:image/png;base64,AA==" }, messages: { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } } }[dialect];
  const part = { type: dialect === "responses" ? "input_text" : "text", text: asking("Please.", { steps: [{ calls: [wanted(world.tools[2])] }] }) };
  const more = dialect === "messages" ? { temperature: 0.5, metadata: { user_id: "u" } } : { temperature: 0.5, metadata: { a: "b" }, user: "u" };
  const text = JSON.stringify(body(dialect, [part, image], world.tools.slice(0, 5).map(SHAPES[dialect]), more), null, 3).replace("0.5", "5.0e-1");
  const { status, sent } = await send(world, dialect, text);
  assert.equal(status, 200);
  assert.deepEqual(sent, [text]);
}

/** The provider's own search is in the request. */
async function native(world, dialect) {
  if (dialect === "chat") return;
  const own = { responses: { type: "tool_search" }, messages: { type: "tool_search_tool_bm25_20251119", name: "tool_search_tool_bm25" } }[dialect];
  const tools = [own, ...world.tools.slice(0, 200).map((tool) => ({ ...SHAPES[dialect](tool), defer_loading: true }))];
  const text = JSON.stringify(body(dialect, asking("Please.", {}), tools));
  const { status, sent } = await send(world, dialect, text);
  assert.equal(status, 200);
  assert.deepEqual(sent, [text]);
}

async function offByHeader(world, dialect) {
  const text = JSON.stringify(body(dialect, asking("Please.", {}), world.tools.map(SHAPES[dialect])));
  const { sent } = await send(world, dialect, text, { "x-toolscout-defer": "off" });
  assert.deepEqual(sent, [text]);
}

const toolNames = (text) => JSON.parse(text).tools.map((tool) => tool.name ?? tool.function.name);

/** A few of a short list are to be deferred, and the mark is gone where they are shown. */
async function marked(world, dialect) {
  const tools = world.tools.slice(0, 12).map((tool, index) => ({ ...SHAPES[dialect](tool), ...(index >= 4 && { defer_loading: true }) }));
  const call = wanted(world.tools[8]);
  const text = JSON.stringify(body(dialect, asking("Please.", { steps: [{ calls: [call] }] }), tools));
  const { status, sent, answer } = await send(world, dialect, text);
  assert.equal(status, 200, JSON.stringify(answer));
  assert.equal(sent.length, 2);
  assert.equal(toolNames(sent[0]).length, 5, "four and the search");
  assert(toolNames(sent[1]).includes(call.name));
  assert(!sent.join().includes("defer_loading"));
  assert(JSON.stringify(answer).includes(call.name));
}

async function twins(world, dialect) {
  const tools = [...world.tools, world.tools[3]].map(SHAPES[dialect]);
  const { status, answer } = await send(world, dialect, JSON.stringify(body(dialect, asking("Please.", {}), tools)));
  assert.equal(status, 400, JSON.stringify(answer));
  assert.equal(answer.error.type, "invalid_request_error");
  assert.equal(answer.type, dialect === "messages" ? "error" : undefined);
  world.provider.complaints.length = 0;
}

const CHOICES = {
  chat: { named: (name) => ({ type: "function", function: { name } }), required: "required", none: "none" },
  responses: { named: (name) => ({ type: "function", name }), required: "required", none: "none" },
  messages: { named: (name) => ({ type: "tool", name }), required: { type: "any" }, none: { type: "none" } },
};

async function choices(world, dialect) {
  const call = wanted(world.tools[200]);
  const question = asking("Please.", { steps: [{ calls: [call] }] });
  const ask = (choice) => send(world, dialect, JSON.stringify(body(dialect, question, world.tools.map(SHAPES[dialect]), { tool_choice: choice })));
  const named = await ask(CHOICES[dialect].named(call.name));
  assert.equal(named.sent.length, 1);
  assert(toolNames(named.sent[0]).includes(call.name), "a tool that is chosen by name is shown");
  assert(JSON.stringify(named.answer).includes(call.name));
  const required = await ask(CHOICES[dialect].required);
  assert.equal(required.sent.length, 2);
  assert(JSON.stringify(required.answer).includes(call.name));
  const none = await ask(CHOICES[dialect].none);
  assert(!JSON.stringify(none.answer.output ?? none.answer.choices ?? none.answer.content).includes(call.name));
}

/** What a round more costs is in the sum, and what was spared is said. */
async function accounts(world, dialect) {
  const call = wanted(world.tools[200]);
  const text = JSON.stringify(body(dialect, asking("Please.", { steps: [{ calls: [call] }] }), world.tools.map(SHAPES[dialect])));
  const { sent, answer, headers } = await send(world, dialect, text, { "x-request-id": "mine" });
  const tokens = sent.map((one) => Math.ceil(one.length / 4)).reduce((sum, one) => sum + one, 0);
  assert.equal(answer.usage.prompt_tokens ?? answer.usage.input_tokens, tokens);
  const reported = [...headers].filter(([name]) => name.startsWith("x-toolscout-")).map(([name, value]) => `${name.slice(12)} ${value}`);
  assert(reported.length >= 4, `it reports ${reported}`);
}

/** The client has a tool that is called as ours. */
async function sameName(world, dialect) {
  const own = { name: "tool_search", description: "Searches for hammers and saws.", parameters: { type: "object", properties: { hammer: { type: "string" } }, required: ["hammer"] } };
  const tools = [own, ...world.tools].map(SHAPES[dialect]);
  const call = wanted(world.tools[200]);
  const { sent, answer } = await send(world, dialect, JSON.stringify(body(dialect, asking("Please.", { steps: [{ calls: [call] }] }), tools)));
  assert(JSON.stringify(answer).includes(call.name), JSON.stringify(answer));
  assert.equal(sent.length, 2);
  const names = toolNames(sent[0]);
  assert.equal(new Set(names).size, names.length);
}

/** A conversation in which the model thinks, searches and calls at once, and calls what it was not shown. */
async function unusual(world, dialect) {
  const { provider, server, tools } = world;
  const [first, second, third] = [wanted(tools[2]), wanted(tools[150]), wanted(tools[300])];
  const name = `unusual ${dialect}`;
  const script = (steps, more) => asking("Please.", { conversation: name, steps, ...more });
  const turns = [
    script([{ calls: [first], think: "What could fit?" }]),
    // The first is shown from the turn before; the second is searched in the same round.
    script([{ calls: [first, second], mixed: true }]),
    script([{ calls: [third], blind: true }]),
    script([{ calls: [third] }]),
  ];
  const answers = await conversation(WAY_OF[dialect], (server ?? provider).url, tools, KEY).answers(turns);
  assert.deepEqual(answers.map((answer) => answer.split("_").length > 1), [true, true, true, true], JSON.stringify(answers));
  const rounds = provider.conversation(name).map(({ round }) => round).join(" ");
  assert.equal(rounds, "search call answer search call answer call answer call answer");
}

async function headersPass(world) {
  const { provider, server } = world;
  const text = JSON.stringify(body("messages", asking("Please.", { conversation: "headers" }), world.tools.map(SHAPES.messages)));
  const { headers } = await send(world, "messages", text, { "anthropic-beta": "a-beta", "openai-organization": "org" });
  const [record] = provider.conversation("headers");
  assert.equal(record.headers["anthropic-beta"], "a-beta");
  assert.equal(record.headers["openai-organization"], "org");
  assert.match(headers.get("x-request-id"), /^req_/);
  const models = await (await fetch(`${server.url}/v1/models`, { headers: HEADERS.chat })).json();
  assert(models.data.some(({ id }) => id === "scripted"), JSON.stringify(models));
}

/** What was remembered is gone in the middle of the conversation: nothing fails, and what was called is shown again. */
async function forgotten(world, dialect) {
  const { provider, tools } = world;
  const name = `forgotten ${dialect}`;
  const turns = questions(tools, name);
  const servers = [await Server.start(provider.url), await Server.start(provider.url)];
  try {
    const way = (server) => conversation(WAY_OF[dialect], server.url, tools, KEY);
    const [before, after] = servers.map(way);
    await before.answers(turns.slice(0, 2).map(({ question }) => question));
    after.messages = before.messages;
    const answers = await after.answers(turns.slice(2).map(({ question }) => question));
    assert.deepEqual(answers, turns.slice(2).map(({ answer }) => answer));
    const rounds = provider.conversation(name).slice(-3).map(({ round }) => round);
    assert.equal(rounds.join(" "), "answer call answer");
    // That the prompt has lost the hidden rounds is what is to be expected, and nothing else.
    const others = provider.complaints.filter((complaint) => !/^conversation 7: /.test(complaint));
    assert.deepEqual(others, []);
    provider.complaints.length = 0;
  } finally {
    await Promise.all(servers.map((server) => server.end()));
  }
}

export const passing = {
  "passes: a short list, byte for byte": dialects(short),
  "passes: the provider's own search": dialects(native),
  "passes: off by header": dialects(offByHeader),
  "passes: headers and models": headersPass,
  "shown: tools that are marked": dialects(marked),
  "shown: tools that are chosen": dialects(choices),
  "shown: a client's own tool_search": dialects(sameName),
  "shown: thoughts, mixed and blind calls": dialects(unusual),
  "shown: what was called, after a restart": dialects(forgotten),
  "answers: two tools of one name": dialects(twins),
  "answers: usage in all": dialects(accounts),
};
