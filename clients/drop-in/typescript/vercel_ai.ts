/** An agent of the Vercel AI SDK, with the provider that the environment names. */

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { type ModelMessage, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { QUESTIONS, TOOLS, TOOLSCOUT, call } from "./company.js";

const openai = createOpenAI({ baseURL: `${TOOLSCOUT}/v1` });
const anthropic = createAnthropic({ baseURL: `${TOOLSCOUT}/v1` });
const compatible = createOpenAICompatible({ name: "provider", baseURL: `${TOOLSCOUT}/v1`, apiKey: process.env.OPENAI_API_KEY });

const models = {
  openai: openai("gpt-5.4-mini"),
  anthropic: anthropic("claude-sonnet-5"),
  compatible: compatible("gpt-5.4-mini"),
};
const model = models[(process.env.PROVIDER ?? "openai") as keyof typeof models];

const tools = Object.fromEntries(
  TOOLS.map(({ name, description, parameters }) => [
    name,
    tool({ description, inputSchema: jsonSchema<object>(parameters), execute: async (given) => call(name, given) }),
  ]),
);
const messages: ModelMessage[] = [];
for (const question of QUESTIONS) {
  messages.push({ role: "user", content: question });
  const ask = process.env.STREAM ? streamText : generateText;
  const result = await ask({ model, messages, tools, stopWhen: stepCountIs(10) });
  const text = await result.text;
  messages.push(...(await result.responseMessages));
  console.log(text);
}
