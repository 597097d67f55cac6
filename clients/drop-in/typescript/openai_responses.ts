/** Responses with the OpenAI SDK, whose history the client keeps. */

import OpenAI from "openai";
import { QUESTIONS, TOOLS, TOOLSCOUT, call } from "./company.js";

const client = new OpenAI({ baseURL: `${TOOLSCOUT}/v1` });

const tools = TOOLS.map((tool) => ({ type: "function" as const, strict: false, ...tool }));
const input: OpenAI.Responses.ResponseInputItem[] = [];
for (const question of QUESTIONS) {
  input.push({ role: "user", content: question });
  for (;;) {
    const response = await client.responses.create({ model: "gpt-5.4-mini", input, tools, store: false });
    input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]));
    const wanted = response.output.filter((item) => item.type === "function_call");
    if (wanted.length === 0) {
      console.log(response.output_text);
      break;
    }
    for (const { name, call_id, arguments: given } of wanted) {
      input.push({ type: "function_call_output", call_id, output: call(name, JSON.parse(given)) });
    }
  }
}
