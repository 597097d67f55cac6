/** What SDKs make of lists of thousands of tools, of other base URLs, of paths that are not there, and of two keys. */

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { Server } from "./server.mjs";
import { SHAPES } from "./tools.mjs";
import { client, conversation } from "./ways.mjs";

const WAYS_OF_EACH = ["chat.completions.create", "responses.create, stream", "messages.create"];

/** The tools of the company, of as many companies as are needed. */
function many(tools, number) {
  return Array.from({ length: number }, (_, index) => {
    const [tool, company] = [tools[index % tools.length], Math.floor(index / tools.length)];
    return { ...tool, name: `${tool.name}_${company}`, description: `${tool.description} Company ${company}.`, need: `${tool.need} of company ${company}` };
  });
}

async function thousands({ provider, server, tools }) {
  const list = many(tools, 5_000);
  const wanted = list[4_321];
  for (const way of WAYS_OF_EACH) {
    const name = `thousands ${way}`;
    const calls = [{ name: wanted.name, arguments: { id: "1", notes: "-" }, need: wanted.need }];
    const [answer] = await conversation(way, server.url, list, KEY).answers([asking("Please.", { conversation: name, steps: [{ calls }], answer: "Done." })]);
    assert.match(answer, /^Done. I saw: /, way);
    const requests = provider.conversation(name);
    assert.equal(requests.map(({ round }) => round).join(" "), "search call answer");
    const shown = Math.max(...requests.map((request) => request.tools.length));
    assert(shown < 60, `${shown} tools were shown`);
  }
  return `${list.length} tools, ${Math.round(JSON.stringify(list.map(SHAPES.chat)).length / 1024)} KiB`;
}

async function tooMany({ server, tools }) {
  const list = many(tools, 50_000);
  const said = [];
  for (const way of WAYS_OF_EACH) {
    const refused = conversation(way, server.url, list, KEY).answers(["Please."]);
    await assert.rejects(refused, (error) => {
      said.push(error.constructor.name);
      assert.equal(error.status, 400);
      assert.match(error.message, /50000 tools, and 20000 are searched at most/);
      return error instanceof OpenAI.BadRequestError || error instanceof Anthropic.BadRequestError;
    });
  }
  return said.join(", ");
}

/** As people write them who know the other SDK. */
async function otherBases({ server }) {
  const asked = { model: "m", messages: [{ role: "user", content: asking("Hi", { answer: "Hello." }) }] };
  const openai = client(OpenAI, server.url, KEY, { baseURL: server.url });
  assert.equal((await openai.chat.completions.create(asked)).choices[0].message.content, "Hello.");
  assert.equal((await openai.responses.create({ model: "m", input: asked.messages })).output_text, "Hello.");
  assert((await openai.models.list()).data.length > 0);
  const anthropic = client(Anthropic, server.url, KEY, { baseURL: `${server.url}/v1` });
  const { content } = await anthropic.messages.create({ ...asked, max_tokens: 9 });
  assert.equal(content[0].text, "Hello.");
  assert.equal(await anthropic.messages.stream({ ...asked, max_tokens: 9 }).finalText(), "Hello.");
}

async function noRoutes({ server }) {
  const openai = client(OpenAI, server.url, KEY);
  const names = /is no route of this server; of the providers' APIs it has POST \/v1\/chat\/completions/;
  const calls = [
    () => openai.completions.create({ model: "m", prompt: "a" }),
    () => openai.moderations.create({ input: "a" }),
  ];
  for (const call of calls) await assert.rejects(call, { status: 404, message: names });
}

/** The provider does not count tokens, so the server does. */
async function countedTokens({ server }) {
  const [openai, anthropic] = [client(OpenAI, server.url, KEY), client(Anthropic, server.url, KEY)];
  const ofMessages = await anthropic.messages.countTokens({ model: "m", messages: [{ role: "user", content: "tool search finds tools" }] });
  const ofResponses = await openai.responses.inputTokens.count({ model: "m", input: "tool search finds tools" });
  for (const { input_tokens: tokens } of [ofMessages, ofResponses]) assert.ok(tokens >= 4 && tokens < 20, `${tokens}`);
}

/** The client has a key of the server and one of the provider; each SDK sends one by itself. */
async function bothKeys({ provider }) {
  const server = await Server.start(provider.url, { more: ["--llm-key-from-client"], keys: [["--scope", "llm", "--catalogs", "*"]] });
  try {
    const [own] = server.keys;
    const asked = { model: "m", messages: [{ role: "user", content: asking("Hi", { answer: "Hello." }) }] };
    const options = { defaultHeaders: { "X-API-Key": own } };
    const openai = client(OpenAI, server.url, KEY, options);
    assert.equal((await openai.chat.completions.create(asked)).choices[0].message.content, "Hello.");
    const anthropic = client(Anthropic, server.url, KEY, options);
    assert.equal((await anthropic.messages.create({ ...asked, max_tokens: 9 })).content[0].text, "Hello.");
    // As clients that send the provider's key in the other header.
    const headers = { "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": KEY, authorization: `Bearer ${own}` };
    const body = JSON.stringify({ ...asked, max_tokens: 9 });
    const answer = await (await fetch(`${server.url}/v1/messages`, { method: "POST", headers, body })).json();
    assert.equal(answer.content?.[0].text, "Hello.", JSON.stringify(answer));
    // Either key alone is refused: by this server without its own, by the provider without the provider's.
    for (const key of [KEY, own]) await assert.rejects(client(OpenAI, server.url, key).chat.completions.create(asked), { status: 401 });
  } finally {
    await server.end();
  }
}

export const bounds = {
  "bounds: 5,000 tools": thousands,
  "bounds: 50,000 tools": tooMany,
  "addresses: other base URLs": otherBases,
  "addresses: paths that are not there": noRoutes,
  "addresses: tokens are counted": countedTokens,
  "keys: two in one request": bothKeys,
};
