/** Generated conversations: what they ask, how they go, and what the client had of them in the end. */

import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { Random } from "./random.mjs";
import { exampleArguments } from "./tools.mjs";
import { conversation } from "./ways.mjs";

export const GENERATED_WAYS = ["chat.completions.create", "chat.completions.create, stream", "chat.completions.stream", "responses.create", "responses.create, stream", "responses.stream", "messages.create", "messages.create, stream", "messages.stream"];

const SAYINGS = ["One moment.", "Ich sehe nach: größer als gedacht.", "調べます。", "On it 🙂", 'He said "wait".'];

/** Lists that are long enough to be deferred, each with some tools that the others have too. */
export function lists(tools, count, size) {
  return Array.from({ length: count }, (_, index) => tools.filter((_, at) => (at + index * 37) % tools.length < size));
}

/** A conversation of one to three turns over one of the lists. */
export function generated(seed, lists) {
  const random = new Random(`conversation ${seed}`);
  const tools = random.pick(lists);
  const name = `generated ${seed}`;
  const turns = Array.from({ length: 1 + random.below(3) }, () => turn(name, tools, random));
  return { name, tools, way: GENERATED_WAYS[seed % GENERATED_WAYS.length], turns };
}

function turn(conversation, tools, random) {
  const steps = Array.from({ length: random.below(3) }, () => {
    const calls = random.sample(tools, 1 + random.below(3)).map((tool) => ({ name: tool.name, arguments: exampleArguments(tool, random), need: tool.need }));
    return { calls, ...(random.chance(0.5) && { say: `${random.pick(SAYINGS)} ${random.below(1e6)}` }) };
  });
  return asking("Please.", { conversation, steps, answer: `${random.pick(SAYINGS)} ${random.below(1e6)}` });
}

/** Holds the conversation; returns its messages as the client has them. */
export async function hold({ tools, way, turns }, url, { key = KEY, options } = {}) {
  const held = conversation(way, url, tools, key, options);
  await held.answers(turns);
  return held.messages;
}

/** Messages without ids, and with texts that follow each other as one: a model may stop between them to search. */
export function comparable(messages) {
  const calls = new Map();
  const numbered = (id) => {
    if (id && !calls.has(id)) calls.set(id, `call ${calls.size + 1}`);
    return calls.get(id);
  };
  const plain = (value, key) => {
    if (["tool_call_id", "call_id", "tool_use_id"].includes(key)) return numbered(value);
    if (Array.isArray(value)) return joined(value.map((element) => plain(element)));
    if (value === null || typeof value !== "object") return value;
    const named = value.type === "tool_use" || value.type === "function" ? { ...value, id: numbered(value.id) } : { ...value, id: undefined };
    return Object.fromEntries(Object.entries(named).map(([name, inner]) => [name, plain(inner, name)]).filter(([, inner]) => inner !== undefined));
  };
  return plain(messages);
}

/** Text blocks, or messages of the Responses API, that follow each other become one. */
function joined(elements) {
  const whole = [];
  for (const element of elements) {
    const last = whole.at(-1);
    if (element?.type === "text" && last?.type === "text") whole[whole.length - 1] = { ...last, text: last.text + element.text };
    else if (element?.type === "message" && last?.type === "message") whole[whole.length - 1] = { ...last, content: joined([...last.content, ...element.content]) };
    else if (element?.type === "output_text" && last?.type === "output_text") whole[whole.length - 1] = { ...last, text: last.text + element.text };
    else whole.push(element);
  }
  return whole;
}
