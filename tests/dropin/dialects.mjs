/**
 * How each of the three APIs says things, by their public descriptions: what may be in a request, what its messages
 * mean, and how an answer looks, whole and as a stream.
 *
 * A request's messages are read as `{role, text, calls: [{id, name, arguments}], id}`, `id` being that of the call that
 * a tool's result answers.
 */

const words = (text) => new Set(text.trim().split(/\s+/));
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** A mistake in a request that a provider answers with status 400. */
export class Refused extends Error {}

function refuse(message) {
  throw new Refused(message);
}

function checkFields(value, known, where) {
  for (const key of Object.keys(value)) if (!known.has(key)) refuse(`Unknown parameter: '${where}${key}'.`);
}

function checkNames(tools) {
  const seen = new Set();
  for (const { name } of tools) {
    if (!NAME.test(name ?? "")) refuse(`Invalid tool name: ${JSON.stringify(name)}.`);
    if (seen.has(name)) refuse(`Tool names must be unique: '${name}'.`);
    seen.add(name);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return refuse(`The arguments of a call are no JSON: ${text.slice(0, 80)}`);
  }
}

/** True when the provider is to search the tools itself; only then may they be deferred. */
function searches({ tools = [] }) {
  return tools.some(({ type }) => type?.startsWith("tool_search"));
}

/** A text, or the texts of its parts. */
function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? part.refusal ?? "").join("");
}

const usageOf = (reply) => ({ input: Math.ceil(reply.requestBytes / 4), output: Math.ceil((reply.text.length + JSON.stringify(reply.calls).length) / 4) });
const argumentsOf = (call) => JSON.stringify(call.arguments);

class Chat {
  path = "/v1/chat/completions";
  history = "messages";

  fields = words(`messages model audio frequency_penalty function_call functions logit_bias logprobs
    max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed
    service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
    web_search_options`);

  read(body) {
    checkFields(body, this.fields, "");
    const tools = (body.tools ?? []).map((tool) => this.readTool(tool));
    checkNames(tools);
    const choice = body.tool_choice ?? "auto";
    const named = choice.function?.name;
    if (named && !tools.some(({ name }) => name === named)) refuse(`Tool choice '${named}' not found in 'tools'.`);
    const messages = body.messages.map((message) => this.readOne(message));
    this.checkOrder(messages);
    return { tools, messages, named, choice: named ? "named" : choice, parallel: body.parallel_tool_calls !== false };
  }

  readTool(tool) {
    if (tool.type !== "function") return { name: tool.type, hosted: true };
    checkFields(tool, words("type function"), "tools[].");
    checkFields(tool.function, words("name description parameters strict"), "tools[].function.");
    return tool.function;
  }

  readOne(message) {
    const { role } = message;
    if (!["system", "developer", "user", "assistant", "tool"].includes(role)) refuse(`Invalid role: ${role}.`);
    checkFields(message, words("role content name tool_calls tool_call_id refusal annotations audio function_call reasoning_content parsed"), "messages[].");
    if (message.tool_calls?.length === 0) refuse("Invalid 'messages[].tool_calls': empty array.");
    const calls = (message.tool_calls ?? []).map((call) => {
      checkFields(call, words("id type function index"), "messages[].tool_calls[].");
      checkFields(call.function, words("name arguments parsed_arguments"), "messages[].tool_calls[].function.");
      return { id: call.id, name: call.function.name, arguments: parsed(call.function.arguments) };
    });
    return { role, text: textOf(message.content), calls, id: message.tool_call_id, think: message.reasoning_content };
  }

  checkOrder(messages) {
    let open = new Set();
    messages.forEach(({ role, calls, id }, index) => {
      if (role === "tool") {
        if (!open.delete(id)) refuse(`messages[${index}] answers no call before it: ${id}.`);
        return;
      }
      if (open.size > 0) refuse(`An assistant message with 'tool_calls' must be followed by tool messages: ${[...open]}.`);
      if (role === "assistant" && messages[index - 1]?.role === "assistant") refuse(`messages[${index}] is a second message of the assistant.`);
      open = new Set(calls.map((call) => call.id));
    });
    if (open.size > 0) refuse(`An assistant message with 'tool_calls' must be followed by tool messages: ${[...open]}.`);
  }

  frame(reply, object) {
    return { id: `chatcmpl-${reply.id}`, object, created: reply.created, model: reply.model, service_tier: "default", system_fingerprint: "fp_scripted" };
  }

  usage(reply) {
    const { input, output } = usageOf(reply);
    return {
      prompt_tokens: input, completion_tokens: output, total_tokens: input + output,
      prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 }, completion_tokens_details: { reasoning_tokens: 0, audio_tokens: 0 },
    };
  }

  calls(reply) {
    return reply.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: argumentsOf(call) } }));
  }

  whole(reply) {
    const message = { role: "assistant", content: reply.text || null, refusal: null, annotations: [] };
    if (reply.think) message.reasoning_content = reply.think;
    if (reply.calls.length > 0) message.tool_calls = this.calls(reply);
    const choice = { index: 0, message, logprobs: null, finish_reason: reply.calls.length > 0 ? "tool_calls" : "stop" };
    return { ...this.frame(reply, "chat.completion"), choices: [choice], usage: this.usage(reply) };
  }

  *events(reply, random) {
    const wantsUsage = reply.body.stream_options?.include_usage;
    const chunk = (delta, finish = null) => ({
      data: { ...this.frame(reply, "chat.completion.chunk"), choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }], ...(wantsUsage && { usage: null }) },
    });
    yield chunk({ role: "assistant", content: reply.calls.length > 0 && !reply.text ? null : "", refusal: null });
    for (const piece of fragments(reply.think, random)) yield chunk({ reasoning_content: piece });
    for (const piece of fragments(reply.text, random)) yield chunk({ content: piece });
    for (const [index, call] of this.calls(reply).entries()) {
      const { name, arguments: text } = call.function;
      yield chunk({ tool_calls: [{ index, id: call.id, type: "function", function: { name, arguments: "" } }] });
      for (const piece of fragments(text, random)) yield chunk({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
    yield chunk({}, reply.calls.length > 0 ? "tool_calls" : "stop");
    if (wantsUsage) yield { data: { ...this.frame(reply, "chat.completion.chunk"), choices: [], usage: this.usage(reply) } };
    yield { data: "[DONE]" };
  }

  error(status, type, message) {
    return { error: { message, type, param: null, code: null } };
  }
}

class Responses {
  path = "/v1/responses";
  history = "input";
  ids = "resp_";

  fields = words(`background context_management conversation include input instructions max_output_tokens max_tool_calls
    metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options
    prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text
    tool_choice tools top_logprobs top_p truncation user`);

  read(body, stored) {
    checkFields(body, this.fields, "");
    const tools = (body.tools ?? []).map((tool) => this.readTool(tool, searches(body)));
    checkNames(tools.filter(({ hosted }) => !hosted));
    const choice = body.tool_choice ?? "auto";
    const named = choice.type === "function" ? choice.name : undefined;
    if (named && !tools.some(({ name }) => name === named)) refuse(`Tool choice '${named}' not found in 'tools'.`);
    const before = body.previous_response_id ? stored.get(body.previous_response_id) : [];
    if (!before) refuse(`Previous response with id '${body.previous_response_id}' not found.`);
    const input = typeof body.input === "string" ? [{ role: "user", content: body.input }] : body.input;
    const messages = [...before, ...input.map((item) => this.readOne(item))];
    this.checkOrder(messages);
    return { tools, messages, before: before.length, named, choice: named ? "named" : choice, parallel: body.parallel_tool_calls !== false };
  }

  readTool(tool, searches) {
    if (tool.type !== "function") return { name: tool.type, hosted: true };
    checkFields(tool, words(`type name description parameters strict ${searches ? "defer_loading" : ""}`), "tools[].");
    return tool;
  }

  readOne(item) {
    const none = { text: "", calls: [] };
    switch (item.type ?? "message") {
      case "message":
        checkFields(item, words("type role content id status phase"), "input[].");
        return { ...none, role: item.role, text: textOf(item.content) };
      case "function_call":
        checkFields(item, words("type id call_id name arguments status parsed_arguments"), "input[].");
        return { ...none, role: "assistant", calls: [{ id: item.call_id, name: item.name, arguments: parsed(item.arguments) }] };
      case "function_call_output":
        checkFields(item, words("type id call_id output status"), "input[].");
        return { ...none, role: "tool", id: item.call_id, text: textOf(item.output) };
      case "reasoning":
        return { ...none, role: "assistant", think: item.summary.map(({ text }) => text).join("") };
      default:
        return refuse(`Invalid item type: ${item.type}.`);
    }
  }

  checkOrder(messages) {
    const [called, answered] = [new Set(), new Set()];
    messages.forEach((item, index) => {
      const follows = messages[index + 1]?.role === "assistant";
      if (item.think !== undefined && !follows) refuse(`Item ${index} of type 'reasoning' was provided without its required following item.`);
      for (const { id } of item.calls) called.add(id);
      if (item.role !== "tool") return;
      if (!called.has(item.id)) refuse(`No tool call found for function call output with call_id ${item.id}.`);
      if (answered.has(item.id)) refuse(`Duplicate function call output with call_id ${item.id}.`);
      answered.add(item.id);
    });
    for (const id of called) if (!answered.has(id)) refuse(`No tool output found for function call ${id}.`);
  }

  /** What a later request means by this response's id. */
  stored(view, reply) {
    return [...view.messages, ...this.output(reply).map((item) => this.readOne(item))];
  }

  output(reply) {
    const items = [];
    if (reply.think) items.push({ id: `rs_${reply.id}`, type: "reasoning", summary: [{ type: "summary_text", text: reply.think }] });
    if (reply.text) items.push({ id: `msg_${reply.id}`, type: "message", status: "completed", role: "assistant", content: [this.part(reply.text)] });
    for (const call of reply.calls) items.push({ id: `fc_${call.id}`, type: "function_call", status: "completed", call_id: call.id, name: call.name, arguments: argumentsOf(call) });
    return items;
  }

  part(text) {
    return { type: "output_text", annotations: [], logprobs: [], text };
  }

  response(reply, status, output) {
    const { body } = reply;
    const { input, output: written } = usageOf(reply);
    const usage = { input_tokens: input, input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 }, output_tokens: written, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: input + written };
    return {
      id: `${this.ids}${reply.id}`, object: "response", created_at: reply.created, status, background: false, error: null, incomplete_details: null,
      instructions: body.instructions ?? null, max_output_tokens: body.max_output_tokens ?? null, model: reply.model, output,
      parallel_tool_calls: body.parallel_tool_calls ?? true, previous_response_id: body.previous_response_id ?? null, reasoning: { effort: null, summary: null },
      store: body.store ?? true, temperature: 1, text: body.text ?? { format: { type: "text" } }, tool_choice: body.tool_choice ?? "auto", tools: body.tools ?? [],
      top_p: 1, truncation: "disabled", usage: status === "completed" ? usage : null, user: null, metadata: {},
    };
  }

  whole(reply) {
    return this.response(reply, "completed", this.output(reply));
  }

  *events(reply, random) {
    let number = 0;
    const event = (type, more) => ({ event: type, data: { type, sequence_number: number++, ...more } });
    yield event("response.created", { response: this.response(reply, "in_progress", []) });
    yield event("response.in_progress", { response: this.response(reply, "in_progress", []) });
    for (const [index, item] of this.output(reply).entries()) {
      const place = { item_id: item.id, output_index: index };
      yield* { reasoning: this.reasoning, message: this.message, function_call: this.call }[item.type].call(this, item, place, event, random);
      yield event("response.output_item.done", { output_index: index, item });
    }
    yield event("response.completed", { response: this.whole(reply) });
  }

  *reasoning(item, place, event, random) {
    const [part] = item.summary;
    yield event("response.output_item.added", { output_index: place.output_index, item: { ...item, summary: [] } });
    yield event("response.reasoning_summary_part.added", { ...place, summary_index: 0, part: { ...part, text: "" } });
    for (const delta of fragments(part.text, random)) yield event("response.reasoning_summary_text.delta", { ...place, summary_index: 0, delta });
    yield event("response.reasoning_summary_text.done", { ...place, summary_index: 0, text: part.text });
    yield event("response.reasoning_summary_part.done", { ...place, summary_index: 0, part });
  }

  *message(item, place, event, random) {
    const [part] = item.content;
    yield event("response.output_item.added", { output_index: place.output_index, item: { ...item, status: "in_progress", content: [] } });
    yield event("response.content_part.added", { ...place, content_index: 0, part: this.part("") });
    for (const delta of fragments(part.text, random)) yield event("response.output_text.delta", { ...place, content_index: 0, delta, logprobs: [] });
    yield event("response.output_text.done", { ...place, content_index: 0, text: part.text, logprobs: [] });
    yield event("response.content_part.done", { ...place, content_index: 0, part });
  }

  *call(item, place, event, random) {
    yield event("response.output_item.added", { output_index: place.output_index, item: { ...item, status: "in_progress", arguments: "" } });
    for (const delta of fragments(item.arguments, random)) yield event("response.function_call_arguments.delta", { ...place, delta });
    yield event("response.function_call_arguments.done", { ...place, name: item.name, arguments: item.arguments });
  }

  error(status, type, message) {
    return { error: { message, type, param: null, code: null } };
  }
}

class Messages {
  path = "/v1/messages";
  history = "messages";
  ids = "msg_";

  fields = words(`cache_control container diagnostics inference_geo max_tokens mcp_servers messages metadata model
    output_config service_tier speed stop_sequences stream system temperature thinking thread tool_choice tools top_k top_p`);

  read(sent, stored, headers) {
    const body = this.unthreaded(sent, stored);
    if (!headers["anthropic-version"]) refuse("anthropic-version: header is required");
    if (!Number.isInteger(body.max_tokens)) refuse("max_tokens: Field required");
    checkFields(body, this.fields, "");
    const tools = (body.tools ?? []).map((tool) => this.readTool(tool, searches(body)));
    checkNames(tools);
    const { type = "auto", name: named, disable_parallel_tool_use: alone } = body.tool_choice ?? {};
    if (named && !tools.some(({ name }) => name === named)) refuse(`Tool '${named}' not found in provided tools`);
    this.checkOrder(body.messages);
    const messages = body.messages.flatMap((message) => this.readOne(message));
    return { body, tools, messages, named, choice: { any: "required", tool: "named" }[type] ?? type, parallel: !alone };
  }

  /** A request that goes on with a thread has only the new messages: the tools are those of the thread's beginning. */
  unthreaded(body, stored) {
    if (body.thread?.type !== "continue") return body;
    const before = stored.get(body.thread.previous_message_id);
    if (!before) refuse("thread_not_found");
    if (body.tools || body.system) refuse("Cannot change `system` and `tools` on a thread");
    return { ...body, tools: before.tools, messages: [...before.messages, ...body.messages] };
  }

  /** What a later request means by this message's id. */
  stored({ body }, reply) {
    return body.thread ? { tools: body.tools, messages: [...body.messages, { role: "assistant", content: this.blocks(reply) }] } : null;
  }

  readTool(tool, searches) {
    if (tool.type && tool.type !== "custom") return { name: tool.name, hosted: true };
    checkFields(tool, words(`type name description input_schema cache_control strict input_examples eager_input_streaming ${searches ? "defer_loading" : ""}`), "tools[].");
    return { ...tool, parameters: tool.input_schema };
  }

  readOne({ role, content }) {
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
    if (role === "assistant") {
      const calls = blocks.filter(({ type }) => type === "tool_use").map((block) => {
        checkFields(block, words("type id name input cache_control caller"), "messages[].content[].");
        return { id: block.id, name: block.name, arguments: block.input };
      });
      const think = blocks.filter(({ type }) => type === "thinking").map(({ thinking }) => thinking).join("") || undefined;
      return [{ role, text: textOf(blocks.filter(({ type }) => type === "text")), calls, think }];
    }
    const results = blocks.filter(({ type }) => type === "tool_result").map((block) => {
      checkFields(block, words("type tool_use_id content is_error cache_control"), "messages[].content[].");
      return { role: "tool", id: block.tool_use_id, text: textOf(block.content), calls: [] };
    });
    const text = textOf(blocks.filter(({ type }) => type === "text"));
    return text || results.length === 0 ? [...results, { role, text, calls: [] }] : results;
  }

  checkOrder(messages) {
    if (messages[0]?.role !== "user") refuse("messages: first message must use the \"user\" role");
    let open = [];
    messages.forEach(({ role, content }, index) => {
      if (!["user", "assistant"].includes(role)) refuse(`messages.${index}.role: unknown role ${role}`);
      if (role === messages[index - 1]?.role) refuse(`messages.${index}: roles must alternate between "user" and "assistant"`);
      const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
      if (blocks.length === 0) refuse(`messages.${index}: content must not be empty`);
      if (blocks.some(({ type, text }) => type === "text" && text === "")) refuse(`messages.${index}: text content blocks must be non-empty`);
      const results = blocks.filter(({ type }) => type === "tool_result").map((block) => block.tool_use_id);
      if ([...results].sort().join() !== [...open].sort().join()) refuse(`messages.${index}: \`tool_use\` ids [${open}] and the \`tool_result\` blocks right after [${results}] differ`);
      if (blocks.slice(0, results.length).some(({ type }) => type !== "tool_result")) refuse(`messages.${index}: \`tool_result\` blocks must come first`);
      open = blocks.filter(({ type }) => type === "tool_use").map(({ id }) => id);
    });
    if (open.length > 0) refuse(`messages: \`tool_use\` ids were found without \`tool_result\` blocks: ${open}`);
  }

  blocks(reply) {
    const blocks = [];
    if (reply.think) blocks.push({ type: "thinking", thinking: reply.think, signature: Buffer.from(reply.think).toString("base64") });
    if (reply.text) blocks.push({ type: "text", text: reply.text });
    for (const call of reply.calls) blocks.push({ type: "tool_use", id: call.id, name: call.name, input: call.arguments });
    return blocks;
  }

  message(reply, content, more, output) {
    const usage = { input_tokens: usageOf(reply).input, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: output, service_tier: "standard" };
    return { id: `${this.ids}${reply.id}`, type: "message", role: "assistant", model: reply.model, content, ...more, usage };
  }

  whole(reply) {
    const stop = reply.calls.length > 0 ? "tool_use" : "end_turn";
    return this.message(reply, this.blocks(reply), { stop_reason: stop, stop_sequence: null }, usageOf(reply).output);
  }

  *events(reply, random) {
    const event = (type, more) => ({ event: type, data: { type, ...more } });
    yield event("message_start", { message: this.message(reply, [], { stop_reason: null, stop_sequence: null }, 1) });
    yield event("ping", {});
    for (const [index, block] of this.blocks(reply).entries()) {
      const delta = (value) => event("content_block_delta", { index, delta: value });
      if (block.type === "text") {
        yield event("content_block_start", { index, content_block: { type: "text", text: "" } });
        for (const text of fragments(block.text, random)) yield delta({ type: "text_delta", text });
      } else if (block.type === "thinking") {
        yield event("content_block_start", { index, content_block: { type: "thinking", thinking: "", signature: "" } });
        for (const thinking of fragments(block.thinking, random)) yield delta({ type: "thinking_delta", thinking });
        yield delta({ type: "signature_delta", signature: block.signature });
      } else {
        yield event("content_block_start", { index, content_block: { ...block, input: {} } });
        yield delta({ type: "input_json_delta", partial_json: "" });
        for (const piece of fragments(JSON.stringify(block.input), random)) yield delta({ type: "input_json_delta", partial_json: piece });
      }
      yield event("content_block_stop", { index });
    }
    const stop = reply.calls.length > 0 ? "tool_use" : "end_turn";
    yield event("message_delta", { delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: usageOf(reply).output } });
    yield event("message_stop", {});
  }

  error(status, type, message) {
    return { type: "error", error: { type, message }, request_id: "req_scripted" };
  }
}

/** A text in pieces, never within a character: a provider sends JSON, whose texts are whole characters. */
function fragments(text, random) {
  return text ? random.cut([...text], 8).map((piece) => piece.join("")) : [];
}

export const DIALECTS = { chat: new Chat(), responses: new Responses(), messages: new Messages() };
