/** Chat completions with the OpenAI SDK, as a stream. */

import OpenAI from "openai";
import { QUESTIONS, TOOLS, TOOLSCOUT, call } from "./company.js";

const client = new OpenAI({ baseURL: `${TOOLSCOUT}/v1` });

const tools = TOOLS.map((tool) => ({ type: "function" as const, function: tool }));
const messages: OpenAI.ChatCompletionMessageParam[] = [];
for (const question of QUESTIONS) {
  messages.push({ role: "user", content: question });
  for (;;) {
    const stream = client.chat.completions.stream({ model: "gpt-5.4-mini", messages, tools });
    const message = await stream.finalMessage();
    messages.push(message);
    if (!message.tool_calls) {
      console.log(message.content);
      break;
    }
    for (const wanted of message.tool_calls) {
      if (wanted.type !== "function") continue;
      const content = call(wanted.function.name, JSON.parse(wanted.function.arguments));
      messages.push({ role: "tool", tool_call_id: wanted.id, content });
    }
  }
}
