/** The SDKs of OpenAI and Anthropic, in every way in which they ask, in Python and TypeScript. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { checkRounds, questions } from "./conversation.mjs";
import { KEY } from "./provider.mjs";
import { WAYS, conversation } from "./ways.mjs";

const PYTHON = [
  "chat.completions.create", "chat.completions.create, stream, async", "chat.completions.parse", "chat.completions.stream, async",
  "responses.create, async", "responses.create, stream", "responses.parse", "responses.stream, async",
  "messages.create, async", "messages.create, stream", "messages.stream, async", "messages.parse",
];

/** Runs cases with the Python SDKs; returns what each saw, in order. */
export async function python({ provider, server, toolsFile }, cases, url = (server ?? provider).url) {
  const child = spawn(process.env.DROPIN_PYTHON, ["-W", "ignore:Pydantic serializer", `${process.env.DROPIN_TESTS}/sdks.py`, toolsFile], { env: { ...process.env, TOOLSCOUT_URL: url }, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("close", resolve));
  child.stdin.end(cases.map((one) => `${JSON.stringify({ key: KEY, ...one })}\n`).join(""));
  let printed = "";
  for await (const piece of child.stdout.setEncoding("utf8")) printed += piece;
  assert.equal(await ended, 0, "sdks.py failed");
  return printed.trimEnd().split("\n").map((line) => JSON.parse(line));
}

const reports = (way) => /parse|completions\.stream, async|responses\.stream, async/.test(way);

async function inPython(world) {
  const cases = PYTHON.map((mode) => ({ mode, asked: questions(world.tools, `Python ${mode}`, reports(mode)) }));
  const seen = await python(world, cases.map(({ mode, asked }) => ({ mode, questions: asked.map(({ question }) => question) })));
  for (const [index, { mode, asked }] of cases.entries()) {
    assert.deepEqual(seen[index].answers, asked.map(({ answer }) => answer), `${mode}: ${JSON.stringify(seen[index])}`);
    checkRounds(world, `Python ${mode}`);
  }
  return `${cases.length} ways`;
}

async function inTypeScript(world, way) {
  const { provider, server, tools } = world;
  const asked = questions(tools, `TypeScript ${way}`, way.includes("parse"));
  const answers = await conversation(way, (server ?? provider).url, tools, KEY).answers(asked.map(({ question }) => question));
  assert.deepEqual(answers, asked.map(({ answer }) => answer));
  return `at most ${checkRounds(world, `TypeScript ${way}`)} tools were shown`;
}

export const sdks = {
  "SDKs, Python": inPython,
  ...Object.fromEntries(Object.keys(WAYS).map((way) => [`SDKs, TypeScript: ${way}`, (world) => inTypeScript(world, way)])),
};
