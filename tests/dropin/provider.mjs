/**
 * A provider of models, played: an HTTP server that speaks OpenAI's chat completions and responses and Anthropic's
 * messages, whole and as streams cut at random bytes. Its model does what the user's message says (model.mjs). It
 * refuses what a provider refuses, and notes as a complaint what a provider could not see: a prompt whose beginning
 * changed, hidden rounds that are not what it said, a key that is not its own.
 */

import { createServer } from "node:http";
import { setImmediate as soon, setTimeout as pause } from "node:timers/promises";
import { DIALECTS, Refused } from "./dialects.mjs";
import { decide, searchTool } from "./model.mjs";
import { Random } from "./random.mjs";
import { rawElements, rawMembers } from "./raw.mjs";

export const KEY = "provider-key";
/** Conversations and responses that are remembered; a soak has more. */
const MOST = 5_000;
const ERRORS = { 400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 500: "api_error" };

export class Provider {
  static async start({ keys = [KEY], port = 0 } = {}) {
    const provider = new Provider();
    provider.keys = new Set(keys);
    provider.complaints = [];
    provider.conversations = new Map();
    provider.stored = new Map();
    provider.gone = 0;
    provider.served = 0;
    provider.open = 0;
    /** Is told every request's text. */
    provider.watch = null;
    provider.server = createServer({ noDelay: true }, (request, response) => provider.answer(request, response));
    // As long as a provider's, so that it closes none that is about to be used again.
    provider.server.keepAliveTimeout = 120_000;
    await new Promise((resolve) => provider.server.listen(port, "127.0.0.1", resolve));
    provider.url = `http://127.0.0.1:${provider.server.address().port}`;
    return provider;
  }

  /** What is known of a conversation: its requests, oldest first. */
  conversation(name) {
    return this.conversations.get(name)?.requests ?? [];
  }

  forget(name) {
    this.conversations.delete(name);
  }

  end() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }

  async answer(request, response) {
    response.on("error", () => {});
    this.open += 1;
    response.once("close", () => (this.open -= 1));
    try {
      const text = await read(request);
      this.watch?.(text);
      await this.reply(request, response, text);
    } catch (error) {
      // The client went away.
      if (request.socket.destroyed) return;
      this.complaints.push(`${request.url}: ${error.stack}`);
      response.destroy();
    }
  }

  async reply(request, response, text) {
    if (request.method === "GET" && request.url === "/v1/models") {
      return send(response, 200, { object: "list", data: [{ id: "scripted", object: "model", created: 1_700_000_000, owned_by: "scripted" }] });
    }
    const dialect = Object.values(DIALECTS).find(({ path }) => path === request.url.split("?")[0]);
    if (!dialect || request.method !== "POST") return send(response, 404, { error: { message: `No such path: ${request.url}`, type: "invalid_request_error", code: null, param: null } });
    const refuse = (status, message, headers) => send(response, status, dialect.error(status, ERRORS[status], message), headers);
    const key = (request.headers["x-api-key"] ?? request.headers.authorization ?? "").replace(/^Bearer /, "");
    if (!this.keys.has(key)) {
      if (`${JSON.stringify(request.headers)}${text}`.includes("tsk_")) this.complaints.push("a key of ours came to the provider");
      return refuse(401, "Incorrect API key provided.");
    }
    try {
      const body = JSON.parse(text);
      const view = dialect.read(body, this.stored, request.headers);
      return await this.play(dialect, { request, response, text, body, view, key, refuse });
    } catch (error) {
      if (!(error instanceof Refused) && !(error instanceof SyntaxError)) throw error;
      this.complaints.push(`${request.url}: ${error.message}`);
      return refuse(400, error.message);
    }
  }

  async play(dialect, exchange) {
    const { request, response, text, body, view, key } = exchange;
    this.served += 1;
    const random = new Random(`${this.served} ${text.length}`);
    const decided = decide(view, random);
    const { script } = decided;
    const conversation = this.remembered(script.conversation ?? "");
    const record = { dialect: dialect.path, round: decided.round, calls: decided.calls.map(({ name }) => name), tools: view.tools.map(({ name }) => name), searchable: Boolean(searchTool(view.tools)), stream: Boolean(body.stream), key, bytes: text.length, headers: request.headers };
    conversation.requests.push(record);
    const fault = this.faultOf(conversation, script, decided.round);
    const raw = { tools: rawElements(rawMembers(text).get("tools") ?? "[]"), history: rawElements(rawMembers(text).get(dialect.history)) };
    if (script.conversation) this.compare(dialect, conversation, raw, body);
    const reply = { ...decided, calls: decided.calls.map((call) => ({ ...call, id: `${dialect.path === "/v1/messages" ? "toolu" : "call"}_${this.served}${random.below(1e9)}` })), id: `${this.served}x${random.below(1e9)}`, created: 1_700_000_000 + this.served, model: body.model, body, requestBytes: text.length };
    conversation.last = fault ? null : { raw, reply, before: view.before ?? 0, chained: Boolean(body.previous_response_id ?? body.thread) };
    const kept = dialect.stored?.(view, reply);
    if (kept) bounded(this.stored, `${dialect.ids}${reply.id}`, kept);
    response.once("close", () => {
      if (response.writableFinished) return;
      this.gone += 1;
      record.gone = true;
      conversation.last = null;
    });
    if (fault && ERRORS[fault.kind]) {
      const headers = fault.kind === 429 ? { "retry-after": "1", "x-ratelimit-remaining-requests": "0" } : {};
      return exchange.refuse(fault.kind, `scripted ${fault.kind}`, { ...headers, "x-request-id": "req_fault" });
    }
    if (fault?.kind === "slow") await pause(fault.ms ?? 60_000, null, { ref: false });
    return body.stream ? this.stream(dialect, reply, response, fault, random) : this.whole(dialect, reply, response, fault);
  }

  remembered(name) {
    const known = this.conversations.get(name) ?? { requests: [], last: null, faults: 0 };
    if (!name) known.requests.length = 0;
    bounded(this.conversations, name, known);
    return known;
  }

  faultOf(conversation, { fault }, round) {
    if (!fault || (fault.in && fault.in !== round) || conversation.faults >= (fault.times ?? Infinity)) return null;
    conversation.faults += 1;
    return fault;
  }

  /** The prompt of the request before is the beginning of this one, and what was said then comes next. */
  compare(dialect, conversation, raw, body) {
    const complain = (message) => this.complaints.push(`conversation ${conversation.requests.length}: ${message}`);
    const { last } = conversation;
    if (!last) return;
    // A thread's tools, and what the id of a response stands for, are not sent again.
    if (!body.thread) differs(last.raw.tools, raw.tools, "tools", complain);
    if (body.previous_response_id || body.thread || last.chained) return;
    if (raw.history.length <= last.raw.history.length) return complain(`${raw.history.length} messages came after ${last.raw.history.length}`);
    differs(last.raw.history, raw.history, "messages", complain);
    const said = this.said(dialect, raw.history.slice(last.raw.history.length));
    const [calls, wanted] = [said.flatMap((message) => message.calls), last.reply.calls].map((list) => JSON.stringify(list.map(({ id, name, arguments: given }) => [id, name, given])));
    if (calls !== wanted) complain(`it called ${wanted} and was told ${calls}`);
    const text = said.map((message) => message.text).join("");
    if (text !== last.reply.text) complain(`it said ${JSON.stringify(last.reply.text)} and was told ${JSON.stringify(text)}`);
    const think = said.map((message) => message.think ?? "").join("");
    if (think && think !== last.reply.think) complain(`it thought ${JSON.stringify(last.reply.think)} and was told ${JSON.stringify(think)}`);
  }

  /** What the assistant said first in these messages. */
  said(dialect, history) {
    const messages = history.flatMap((element) => dialect.readOne(JSON.parse(element)));
    const end = messages.findIndex(({ role }) => role !== "assistant");
    return messages.slice(0, end < 0 ? undefined : end);
  }

  async whole(dialect, reply, response, fault) {
    const body = JSON.stringify(dialect.whole(reply));
    if (fault?.kind === "malformed") return send(response, 200, "<html>Bad gateway</html>");
    if (fault?.kind !== "cut" && fault?.kind !== "stall") return send(response, 200, body, { "x-request-id": `req_${reply.id}` });
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
    response.write(body.slice(0, body.length / 2));
    await pause(20);
    if (fault.kind === "cut") response.destroy();
  }

  async stream(dialect, reply, response, fault, random) {
    const lines = [...dialect.events(reply, random)].map(({ event, data }) => `${event ? `event: ${event}\n` : ""}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
    if (random.chance(0.3)) lines.splice(random.below(lines.length), 0, ": still here\n\n");
    // In the middle of a call, where there is one.
    const middle = reply.calls.length > 0 ? lines.findLastIndex((line) => /"arguments":"[^"]|arguments\.delta|partial_json":"[^"]/.test(line)) : Math.floor(lines.length / 2);
    if (fault?.kind === "malformed") lines.splice(middle, 1, 'data: {"id": "broken, \n\n');
    const stops = fault?.kind === "cut" || fault?.kind === "stall";
    const bytes = Buffer.from(lines.slice(0, stops ? middle : undefined).join("") + (stops ? lines[middle].slice(0, 20) : ""));
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-request-id": `req_${reply.id}` });
    for (const piece of random.cut(bytes, reply.script.slowly ? 60 : 12)) {
      if (response.destroyed) return;
      response.write(piece);
      await (reply.script.slowly ? pause(reply.script.slowly) : soon());
    }
    if (fault?.kind === "cut") return void response.destroy();
    if (fault?.kind !== "stall") response.end();
  }
}

/** Keeps the newest of a map. */
function bounded(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > MOST) map.delete(map.keys().next().value);
}

function differs(before, now, what, complain) {
  const at = before.findIndex((element, index) => element !== now[index]);
  if (at >= 0) complain(`${what}[${at}] was ${before[at].slice(0, 200)} and is ${now[at]?.slice(0, 200)}`);
}

async function read(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString("utf8");
}

function send(response, status, body, headers = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(text);
}
