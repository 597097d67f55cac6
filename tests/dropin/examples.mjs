/** The examples of clients/drop-in, as people copy them: a conversation of four questions over five hundred tools. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { checkRounds, questions } from "./conversation.mjs";
import { KEY } from "./provider.mjs";

const run = promisify(execFile);
const LIMIT_MS = 60_000;

const python = (name) => [process.env.DROPIN_PYTHON, [`${process.env.DROPIN_EXAMPLES}/python/${name}.py`]];
const typescript = (name) => [process.execPath, [`${name}.js`]];

const EXAMPLES = {
  "openai, chat completions, Python": python("openai_chat"),
  "openai, responses, Python": python("openai_responses"),
  "anthropic, Python": python("anthropic_messages"),
  "LangChain": python("langchain_agent"),
  "Pydantic AI": python("pydantic_ai_agent"),
  "OpenAI Agents": python("openai_agents"),
  "openai, chat completions, TypeScript": typescript("openai_chat"),
  "openai, responses, TypeScript": typescript("openai_responses"),
  "anthropic, TypeScript": typescript("anthropic_messages"),
  ...Object.fromEntries(
    ["openai", "anthropic", "compatible"].flatMap((provider) => [
      [`Vercel AI SDK, ${provider}`, [...typescript("vercel_ai"), { PROVIDER: provider }]],
      [`Vercel AI SDK, ${provider}, as a stream`, [...typescript("vercel_ai"), { PROVIDER: provider, STREAM: "1" }]],
    ]),
  ),
};

async function converse(world, name, [program, words, environment = {}]) {
  const { provider, server, tools, toolsFile } = world;
  const asked = questions(tools, name);
  const env = { ...process.env, TOOLSCOUT_URL: (server ?? provider).url, OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY, AI_SDK_LOG_WARNINGS: "false", ...environment };
  const { stdout } = await run(program, [...words, toolsFile, ...asked.map(({ question }) => question)], { env, timeout: LIMIT_MS });
  assert.deepEqual(stdout.trimEnd().split("\n"), asked.map(({ answer }) => answer));
  return `at most ${checkRounds(world, name)} of ${tools.length} tools were shown`;
}

export const examples = Object.fromEntries(Object.entries(EXAMPLES).map(([name, example]) => [`example: ${name}`, (world) => converse(world, name, example)]));
