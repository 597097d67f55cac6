/** The examples of clients/drop-in, as people copy them: a conversation of four questions over five hundred tools. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";

const run = promisify(execFile);
const LIMIT_MS = 60_000;
/** A list that the model sees may hold what was found and the search; all are five hundred. */
const MOST_SHOWN = 60;

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

/** A call, and what the example makes of it. */
function wanted(tools, name, given) {
  const { need } = tools.find((tool) => tool.name === name);
  return { call: { name, arguments: given, need }, result: `${name}(${Object.values(given).join(", ")})` };
}

function questions(tools, conversation) {
  const issue = wanted(tools, "code_create_issue", { title: "Größe falsch", notes: 'says "no" 🙂' });
  const alert = wanted(tools, "monitor_list_alert", { page: 2, status: "open" });
  const mail = wanted(tools, "mail_create_message", { title: "Alerts", notes: "There are some." });
  const again = wanted(tools, "code_create_issue", { title: "Another", notes: "as well" });
  const script = (steps, answer) => ({ conversation, steps, answer });
  return [
    [asking("Please open an issue.", script([{ say: "Let me look.", calls: [issue.call] }], "It is open.")), `It is open. I saw: ${issue.result}`],
    [asking("Which alerts are there? Write them to Ada.", script([{ calls: [alert.call, mail.call] }], "Sent.")), `Sent. I saw: ${alert.result}; ${mail.result}`],
    [asking("Thank you.", script([], "You are welcome.")), "You are welcome."],
    [asking("Open another issue.", script([{ calls: [again.call] }], "Also open.")), `Also open. I saw: ${again.result}`],
  ];
}

const SEARCHED = ["search call answer", "search call answer", "answer", "call answer"].join(" ");
const DIRECT = SEARCHED.replaceAll("search ", "");

async function converse({ provider, server, tools, toolsFile }, name, [program, words, environment = {}]) {
  const asked = questions(tools, name);
  const env = { ...process.env, TOOLSCOUT_URL: (server ?? provider).url, OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY, AI_SDK_LOG_WARNINGS: "false", ...environment };
  const { stdout } = await run(program, [...words, toolsFile, ...asked.map(([question]) => question)], { env, timeout: LIMIT_MS });
  assert.deepEqual(stdout.trimEnd().split("\n"), asked.map(([, answer]) => answer));
  const requests = provider.conversation(name);
  assert.equal(requests.map(({ round }) => round).join(" "), server ? SEARCHED : DIRECT);
  if (!server) return `${requests.length} requests`;
  const shown = Math.max(...requests.map((request) => request.tools.length));
  assert(shown <= MOST_SHOWN, `${shown} tools were shown`);
  return `at most ${shown} of ${tools.length} tools were shown`;
}

export const examples = Object.fromEntries(Object.entries(EXAMPLES).map(([name, example]) => [`example: ${name}`, (world) => converse(world, name, example)]));
