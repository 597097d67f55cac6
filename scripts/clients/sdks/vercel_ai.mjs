import { appendFileSync, readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";

const [, , url, calls, provider, toolsFile] = process.argv;
const apiKey = "key";
const baseURL = `${url}/v1`;
const models = {
  compatible: () => createOpenAICompatible({ name: "toolscout", baseURL, apiKey })("gpt-5.4-mini"),
  responses: () => createOpenAI({ baseURL, apiKey })("gpt-5.4-mini"),
  messages: () => createAnthropic({ baseURL, apiKey })("claude-sonnet-4-5"),
};

const definitions = JSON.parse(readFileSync(toolsFile, "utf8"));
const tools = Object.fromEntries(
  definitions.map(({ name, description, inputSchema }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(inputSchema),
      execute: () => {
        appendFileSync(calls, `${name}\n`);
        return `the office has done ${name}`;
      },
    }),
  ]),
);

const result = streamText({
  model: models[provider](),
  tools,
  stopWhen: stepCountIs(20),
  prompt: "Archive invoice 7 and cancel shipment 7.",
});
for await (const part of result.textStream) process.stdout.write(part);
