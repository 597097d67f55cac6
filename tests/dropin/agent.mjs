/** The server's own agent as a model, in every way in which the SDKs ask; its model is the played provider's. */

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { python } from "./sdks.mjs";
import { Server } from "./server.mjs";
import { WAYS, client, conversation } from "./ways.mjs";

const MODEL = "toolscout/agent";
/** Without the ways that ask for an object in place of a text, or that call tools themselves. */
const TYPESCRIPT = Object.keys(WAYS).filter((way) => !/parse|run/i.test(way));
const PYTHON = ["chat.completions.create", "chat.completions.create, stream, async", "responses.create, async", "responses.create, stream", "messages.create, async", "messages.create, stream", "messages.stream, async"];
const ANSWERS = ["The agent 🙂.", "Still the agent: größer."];
const QUESTIONS = ANSWERS.map((answer) => asking("Who are you?", { answer }));

async function withAgent({ provider }, check) {
  const server = await Server.start(provider.url, { environment: { TOOLSCOUT_LLM_KEY: KEY, TOOLSCOUT_MODEL: "scripted" } });
  try {
    return await check(server);
  } finally {
    await server.end();
  }
}

/** Each conversation of several questions is one for the agent too. */
async function checkConversations(server, number) {
  const kept = await (await fetch(`${server.url}/v1/agent/conversations?limit=500`)).json();
  assert.equal(kept.conversations.length, number);
}

async function inTypeScript(world) {
  return withAgent(world, async (server) => {
    for (const way of TYPESCRIPT) {
      const answers = await conversation(way, server.url, world.tools.slice(0, 3), "none", { model: MODEL }).answers(QUESTIONS);
      assert.deepEqual(answers, ANSWERS, way);
    }
    await checkConversations(server, TYPESCRIPT.length);
    const models = (await client(OpenAI, server.url, "none").models.list()).data.map(({ id }) => id);
    assert.deepEqual(models.filter((id) => [MODEL, "scripted"].includes(id)).sort(), ["scripted", MODEL]);
    return `${TYPESCRIPT.length} ways`;
  });
}

async function inPython(world) {
  return withAgent(world, async (server) => {
    const seen = await python({ ...world, server }, PYTHON.map((mode) => ({ mode, questions: QUESTIONS, model: MODEL, key: "none" })));
    for (const [index, mode] of PYTHON.entries()) assert.deepEqual(seen[index].answers, ANSWERS, `${mode}: ${JSON.stringify(seen[index])}`);
    await checkConversations(server, PYTHON.length);
    return `${PYTHON.length} ways`;
  });
}

/** A client that keeps the id of the last response alone. */
async function byId(world) {
  return withAgent(world, async (server) => {
    const openai = client(OpenAI, server.url, "none");
    let last = null;
    for (const [index, question] of QUESTIONS.entries()) {
      const asked = { model: MODEL, input: question, previous_response_id: last };
      const response = index === 0 ? await openai.responses.create(asked) : await openai.responses.stream(asked).finalResponse();
      assert.equal(response.output_text, ANSWERS[index]);
      assert(response.usage.output_tokens > 0, JSON.stringify(response.usage));
      last = response.id;
    }
    await checkConversations(server, 1);
    const refused = openai.responses.create({ model: MODEL, input: QUESTIONS[0], previous_response_id: "resp_of_nobody" });
    await assert.rejects(refused, { status: 400, code: "previous_response_not_found" });
  });
}

/** The agent's own model fails, before the answer has begun and within it. */
async function failing(world) {
  const server = await Server.start("http://127.0.0.1:9", { environment: { TOOLSCOUT_MODEL: "scripted" } });
  try {
    const [openai, anthropic] = [client(OpenAI, server.url, "none"), client(Anthropic, server.url, "none")];
    const messages = [{ role: "user", content: "Hi" }];
    const asked = { model: MODEL, messages };
    await assert.rejects(openai.chat.completions.create(asked), { status: 502 });
    await assert.rejects(openai.responses.create({ model: MODEL, input: "Hi" }), { status: 502 });
    await assert.rejects(anthropic.messages.create({ ...asked, max_tokens: 9 }), { status: 502 });
    await assert.rejects(openai.chat.completions.stream(asked).finalMessage(), OpenAI.APIError);
    await assert.rejects(openai.responses.stream({ model: MODEL, input: "Hi" }).finalResponse());
    await assert.rejects(anthropic.messages.stream({ ...asked, max_tokens: 9 }).finalMessage(), Anthropic.APIError);
  } finally {
    await server.end();
  }
}

export const agent = {
  "agent: TypeScript": inTypeScript,
  "agent: Python": inPython,
  "agent: by the id of a response": byId,
  "agent: its model fails": failing,
};
