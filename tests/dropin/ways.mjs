/** Every way in which the TypeScript SDKs ask: whole, as a stream, by a helper that parses or calls the tools itself. */

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { call } from "./conversation.mjs";
import { SHAPES } from "./tools.mjs";

const Report = z.object({ title: z.string(), count: z.number() });

/** A conversation; `ask` is one way to get the next message. `turn` gives the answer, or nothing after calls. */
class Conversation {
  constructor(client, tools) {
    this.client = client;
    this.tools = tools.map((tool) => this.shape(tool));
    this.messages = [];
  }

  async answers(questions) {
    const answers = [];
    for (const question of questions) {
      this.messages.push({ role: "user", content: question });
      let answer;
      while (answer === undefined) answer = await this.turn();
      answers.push(answer);
    }
    return answers;
  }
}

class Chat extends Conversation {
  shape(tool) {
    return SHAPES.chat(tool);
  }

  get request() {
    return { model: this.model ?? "gpt-5.4-mini", messages: this.messages, tools: this.tools };
  }

  async turn() {
    const message = await this.ask();
    this.messages.push(message);
    for (const { id, function: { name, arguments: given } } of message.tool_calls ?? []) {
      this.messages.push({ role: "tool", tool_call_id: id, content: call(name, JSON.parse(given)) });
    }
    return message.tool_calls ? undefined : message.content;
  }
}

class Strict extends Chat {
  shape(tool) {
    const { type, function: definition } = SHAPES.chat(tool);
    return { type, function: { ...definition, strict: true } };
  }
}

class ChatCreate extends Chat {
  async ask() {
    return (await this.client.chat.completions.create(this.request)).choices[0].message;
  }
}

class ChatRawStream extends Chat {
  async ask() {
    const [calls, ids] = [[], new Set()];
    let [text, finish] = ["", null];
    for await (const chunk of await this.client.chat.completions.create({ ...this.request, stream: true })) {
      assert(!chunk.usage, "usage was not asked for");
      ids.add(`${chunk.id} ${chunk.created} ${chunk.model}`);
      const [{ delta, finish_reason }] = chunk.choices;
      text += delta.content ?? "";
      finish = finish_reason ?? finish;
      for (const { index, id, function: piece } of delta.tool_calls ?? []) {
        calls[index] ??= { id, type: "function", function: { name: piece.name, arguments: "" } };
        calls[index].function.arguments += piece.arguments;
      }
    }
    assert.equal(ids.size, 1, `chunks have the ids ${[...ids]}`);
    assert.equal(finish, calls.length > 0 ? "tool_calls" : "stop");
    return { role: "assistant", content: text || null, ...(calls.length > 0 && { tool_calls: calls }) };
  }
}

class ChatStream extends Chat {
  async ask() {
    return this.client.chat.completions.stream(this.request).finalMessage();
  }
}

class ChatParse extends Strict {
  async ask() {
    const { message } = (await this.client.chat.completions.parse({ ...this.request, response_format: zodResponseFormat(Report, "report") })).choices[0];
    assert(message.tool_calls || Report.parse(message.parsed));
    return message;
  }
}

/** The SDK calls the tools itself. */
class ChatRunTools extends Chat {
  shape(tool) {
    const { type, function: definition } = SHAPES.chat(tool);
    return { type, function: { ...definition, parse: JSON.parse, function: (given) => call(tool.name, given) } };
  }

  async turn() {
    const runner = this.client.chat.completions.runTools(this.request);
    const content = await runner.finalContent();
    this.messages = [...runner.messages];
    return content;
  }
}

class Responses extends Conversation {
  shape(tool) {
    return SHAPES.responses(tool);
  }

  get request() {
    return { model: this.model ?? "gpt-5.4-mini", input: this.messages, tools: this.tools };
  }

  async turn() {
    const response = await this.ask();
    assert.equal(response.status, "completed");
    const calls = response.output.filter(({ type }) => type === "function_call");
    this.messages.push(...response.output.map(withoutParsed));
    for (const { call_id, name, arguments: given } of calls) this.messages.push({ type: "function_call_output", call_id, output: call(name, JSON.parse(given)) });
    return calls.length > 0 ? undefined : response.output_text;
  }
}

/** What the SDK added to an item does not go back. */
function withoutParsed({ parsed_arguments, ...item }) {
  return item.content ? { ...item, content: item.content.map(({ parsed, ...part }) => part) } : item;
}

class ResponsesCreate extends Responses {
  async ask() {
    return this.client.responses.create(this.request);
  }
}

class ResponsesRawStream extends Responses {
  async ask() {
    const [items, numbers] = [[], []];
    let final;
    for await (const event of await this.client.responses.create({ ...this.request, stream: true })) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_item.done") items.push(event.item);
      if (event.type === "response.completed") final = event.response;
    }
    assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b));
    assert.deepEqual(items, final.output);
    const text = final.output.flatMap(({ content }) => content ?? []).map((part) => part.text).join("");
    return { ...final, output_text: text };
  }
}

class ResponsesStream extends Responses {
  async ask() {
    return this.client.responses.stream(this.request).finalResponse();
  }
}

class ResponsesParse extends Responses {
  async ask() {
    const response = await this.client.responses.parse({ ...this.request, text: { format: zodTextFormat(Report, "report") } });
    assert(response.output.some(({ type }) => type === "function_call") || Report.parse(response.output_parsed));
    return response;
  }
}

class Messages extends Conversation {
  shape(tool) {
    return SHAPES.messages(tool);
  }

  get request() {
    return { model: this.model ?? "claude-sonnet-5", max_tokens: 1024, messages: this.messages, tools: this.tools };
  }

  async turn() {
    const message = await this.ask();
    const calls = message.content.filter(({ type }) => type === "tool_use");
    assert.equal(message.stop_reason, calls.length > 0 ? "tool_use" : "end_turn");
    this.messages.push({ role: "assistant", content: message.content });
    if (calls.length === 0) return message.content.map(({ text }) => text ?? "").join("");
    this.messages.push({ role: "user", content: calls.map(({ id, name, input }) => ({ type: "tool_result", tool_use_id: id, content: call(name, input) })) });
    return undefined;
  }
}

class MessagesCreate extends Messages {
  async ask() {
    return this.client.messages.create(this.request);
  }
}

class MessagesRawStream extends Messages {
  async ask() {
    const blocks = [];
    let message;
    for await (const event of await this.client.messages.create({ ...this.request, stream: true })) {
      if (event.type === "message_start") {
        assert(!message, "a message began twice");
        message = event.message;
      } else if (event.type === "content_block_start") {
        assert.equal(event.index, blocks.length);
        blocks.push({ ...event.content_block, json: "" });
      } else if (event.type === "content_block_delta") {
        const block = blocks[event.index];
        if (event.delta.type === "text_delta") block.text += event.delta.text;
        else block.json += event.delta.partial_json;
      } else if (event.type === "message_delta") message.stop_reason = event.delta.stop_reason;
    }
    message.content = blocks.map(({ json, ...block }) => (block.type === "tool_use" ? { ...block, input: JSON.parse(json) } : block));
    return message;
  }
}

class MessagesStream extends Messages {
  async ask() {
    return this.client.messages.stream(this.request).finalMessage();
  }
}

/** The SDK calls the tools itself. */
class MessagesToolRunner extends Messages {
  shape(tool) {
    return { ...SHAPES.messages(tool), run: (given) => call(tool.name, given), parse: (given) => given };
  }

  async turn() {
    const runner = this.client.beta.messages.toolRunner(this.request);
    const { content } = await runner.runUntilDone();
    this.messages = runner.params.messages.at(-1).role === "assistant" ? [...runner.params.messages] : [...runner.params.messages, { role: "assistant", content }];
    return content.map(({ text }) => text ?? "").join("");
  }
}

export const WAYS = {
  "chat.completions.create": [OpenAI, ChatCreate],
  "chat.completions.create, stream": [OpenAI, ChatRawStream],
  "chat.completions.stream": [OpenAI, ChatStream],
  "chat.completions.parse": [OpenAI, ChatParse],
  "chat.completions.runTools": [OpenAI, ChatRunTools],
  "responses.create": [OpenAI, ResponsesCreate],
  "responses.create, stream": [OpenAI, ResponsesRawStream],
  "responses.stream": [OpenAI, ResponsesStream],
  "responses.parse": [OpenAI, ResponsesParse],
  "messages.create": [Anthropic, MessagesCreate],
  "messages.create, stream": [Anthropic, MessagesRawStream],
  "messages.stream": [Anthropic, MessagesStream],
  "beta.messages.toolRunner": [Anthropic, MessagesToolRunner],
};

/** A client of an SDK; it does not try again unless told. */
export function client(Client, url, apiKey, options = {}) {
  return new Client({ baseURL: Client === OpenAI ? `${url}/v1` : url, apiKey, maxRetries: 0, timeout: 60_000, ...options });
}

/** A conversation in one way, with a model of its own or the usual one. */
export function conversation(way, url, tools, key, options = {}) {
  const [Client, Way] = WAYS[way];
  const { model, ...more } = options;
  return Object.assign(new Way(client(Client, url, key, more), tools), { model });
}
