// Each adapter with the real framework and a model that is played, over 500 tools.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Runner, MemorySession, tool as agentTool, type Model, type ModelRequest } from "@openai/agents";
import { generateText, isStepCount, jsonSchema, tool, type ModelMessage, type ToolSet } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { Catalog } from "toolscout";
import { toolSearch } from "toolscout/adapters/ai";

import { openaiAgents } from "../examples/adapters.js";
import { many } from "./fixtures.js";

const DEFINITIONS = many(500);
const WANTED = "export_playlist";
const QUESTIONS = ["Export my playlist 7.", "Thanks.", "And once more."];

/**
 * What a played model saw at each step, and what it does: it searches, calls what it has found, and answers. In the
 * second turn it answers at once, and in the third it calls the tool again without a search.
 */
class Conversation {
  readonly tools: string[][] = [];
  readonly messages: string[][] = [];
  readonly #steps = ["search", "call", "answer", "answer", "call", "answer"];

  next(tools: string[], messages: readonly unknown[]): { name: string; input: object } | undefined {
    this.tools.push(tools);
    this.messages.push(messages.map((message) => JSON.stringify(message)));
    const step = this.#steps.shift();
    if (step === "search") return { name: "tool_search", input: { query: "export a playlist" } };
    if (step !== "call") return undefined;
    assert.ok(tools.some((name) => name.startsWith(WANTED)));
    return { name: WANTED, input: { id: "7" } };
  }

  /** Checks what was injected, and that the beginning of the prompt stayed. */
  check(): void {
    assert.deepEqual(this.#steps, []);
    const [first, second] = this.tools.map((tools) => tools.map((text) => text.split(" ")[0]));
    assert.deepEqual(first, ["tool_search"]);
    assert.deepEqual(second?.slice(0, 2), ["tool_search", WANTED]);
    assert.ok(second.length <= 6);
    for (const seen of [this.tools, this.messages]) {
      for (const [index, before] of seen.slice(0, -1).entries()) {
        assert.deepEqual(seen[index + 1]?.slice(0, before.length), before);
      }
    }
  }
}

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

function vercelTools(): ToolSet {
  const tools = DEFINITIONS.map(({ name, description, inputSchema }) => {
    const execute = ({ id }: { id: string }) => `${name} of ${id}`;
    return [name, tool({ description, inputSchema: jsonSchema<{ id: string }>(inputSchema as object), execute })];
  });
  return Object.fromEntries(tools) as ToolSet;
}

function vercelModel(seen: Conversation) {
  return new MockLanguageModelV4({
    doGenerate: ({ tools = [], prompt }) => {
      const step = seen.next(tools.map((each) => `${each.name} ${JSON.stringify(each)}`), prompt);
      const call = step && { toolName: step.name, input: JSON.stringify(step.input) };
      const toolCallId = `call-${seen.tools.length}`;
      const content = call
        ? [{ type: "tool-call" as const, toolCallId, ...call }]
        : [{ type: "text" as const, text: "Done." }];
      const reason = call ? ("tool-calls" as const) : ("stop" as const);
      return Promise.resolve({ content, finishReason: { unified: reason, raw: reason }, usage, warnings: [] });
    },
  });
}

for (const given of [false, true]) {
  test(`Vercel AI SDK, ${given ? "with a given catalog" : "with its own"}`, async () => {
    await using catalog = await Catalog.temporary({ embedder: "table" });
    if (given) await catalog.add(DEFINITIONS, { server: "music" });
    const seen = new Conversation();
    const model = vercelModel(seen);
    const search = toolSearch(vercelTools(), given ? { catalog } : { embedder: "table" });
    const messages: ModelMessage[] = [];
    let results = "";
    for (const content of QUESTIONS) {
      messages.push({ role: "user", content });
      const answer = await generateText({ model, messages, stopWhen: isStepCount(8), ...search });
      messages.push(...answer.responseMessages);
      results = JSON.stringify(answer.steps.flatMap((step) => step.toolResults));
    }
    seen.check();
    assert.ok(results.includes(`${WANTED} of 7`), results);
  });
}

test("a given catalog is searched for the tools of the agent alone", async () => {
  await using catalog = await Catalog.temporary({ embedder: "table" });
  const tools = { cancel_meeting: vercelTools()[WANTED]! };
  const found = (query: string) =>
    toolSearch(tools, { catalog, limit: 1 }).tools["tool_search"]!.execute!({ query }, {} as never);
  await assert.rejects(async () => await found("cancel a meeting"), /has none of the 1 tools, such as cancel_meeting/);
  const definition = { name: "cancel_meeting", description: "Cancels a meeting." };
  const others = Array.from({ length: 60 }, (_, n) => ({ ...definition, name: `cancel_meeting_${n}` }));
  await catalog.add([...others, definition], { server: "calendar" });
  assert.deepEqual(await found("somebody wants to cancel a meeting"), { found: ["cancel_meeting"] });
  for (const options of [{ limit: 0 }, { limt: 3 }, { catalog: "x" }]) {
    assert.throws(() => toolSearch(tools, options as object), /limit|no option "limt"|must be a Catalog/);
  }
});

test("OpenAI Agents", async () => {
  const seen = new Conversation();
  const model: Model = {
    getResponse: ({ tools, input }: ModelRequest) => {
      const names = tools.map((each) => `${each.name} ${JSON.stringify(each)}`);
      const step = seen.next(names, typeof input === "string" ? [input] : input);
      const status = "completed" as const;
      const callId = `call-${seen.tools.length}`;
      const call = step && { name: step.name, arguments: JSON.stringify(step.input), callId, status };
      const output = call
        ? [{ type: "function_call" as const, ...call }]
        : [{ type: "message" as const, role: "assistant" as const, status, content: [{ type: "output_text" as const, text: "Done." }] }];
      return Promise.resolve({ usage: { requests: 1, inputTokens: 1, outputTokens: 1, totalTokens: 2 } as never, output });
    },
    getStreamedResponse: () => {
      throw new Error("it is not asked for a stream");
    },
  };
  const searchable = DEFINITIONS.map(({ name, description }) =>
    agentTool({
      name,
      description,
      parameters: { type: "object", properties: { id: { type: "string" } }, required: ["id"], additionalProperties: false },
      execute: (input) => `${name} of ${(input as { id: string }).id}`,
    }),
  );
  const agent = openaiAgents(model, searchable as never);
  const session = new MemorySession();
  const runner = new Runner({ tracingDisabled: true });
  for (const question of QUESTIONS) await runner.run(agent, question, { session });
  seen.check();
  assert.ok(JSON.stringify(await session.getItems()).includes(`${WANTED} of 7`));
});

test("what is shown is within the budget", async () => {
  const few = Object.fromEntries(Object.entries(vercelTools()).slice(0, 100)) as ToolSet;
  const search = toolSearch(few, { embedder: "table", budget: 500 });
  const messages: ModelMessage[] = [];
  const seen = new Set<string>();
  let shown: string[] = [];
  let evictions = 0;
  for (const [number, query] of ["list an invoice", "copy a photo", "share a hotel", "count tickets"].entries()) {
    const { found } = (await search.tools["tool_search"]!.execute!({ query }, {} as never)) as { found: string[] };
    const call = { toolCallId: String(number), toolName: "tool_search" };
    messages.push(
      { role: "user", content: query },
      { role: "assistant", content: [{ type: "tool-call", ...call, input: { query } }] },
      { role: "tool", content: [{ type: "tool-result", ...call, output: { type: "json", value: { found } } }] },
    );
    const { activeTools } = await search.prepareStep({ messages });
    assert.equal(activeTools[0], "tool_search");
    assert.ok(found.every((name) => activeTools.includes(name)));
    if (!shown.every((name) => activeTools.includes(name))) evictions += 1;
    shown = activeTools;
    for (const name of activeTools) seen.add(name);
  }
  assert.ok(evictions > 0 && shown.length < seen.size);
});
