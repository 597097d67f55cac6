/** Messages with the Anthropic SDK. */

import Anthropic from "@anthropic-ai/sdk";
import { QUESTIONS, TOOLS, TOOLSCOUT, call } from "./company.js";

const client = new Anthropic({ baseURL: TOOLSCOUT });

const tools = TOOLS.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
const messages: Anthropic.MessageParam[] = [];
for (const question of QUESTIONS) {
  messages.push({ role: "user", content: question });
  for (;;) {
    const message = await client.messages.create({ model: "claude-sonnet-5", max_tokens: 1024, messages, tools });
    messages.push({ role: "assistant", content: message.content });
    if (message.stop_reason !== "tool_use") {
      console.log(message.content.map((block) => (block.type === "text" ? block.text : "")).join(""));
      break;
    }
    const wanted = message.content.filter((block) => block.type === "tool_use");
    const content = wanted.map(({ id, name, input }) => ({ type: "tool_result" as const, tool_use_id: id, content: call(name, input) }));
    messages.push({ role: "user", content });
  }
}
