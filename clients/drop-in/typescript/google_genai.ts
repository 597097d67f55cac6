/** Gemini with Google's SDK. `GEMINI_API_KEY` has the key. */

import { GoogleGenAI } from "@google/genai";
import { QUESTIONS, TOOLS, TOOLSCOUT, call } from "./company.js";

const client = new GoogleGenAI({ apiKey: process.env.GEMINI_API_KEY, httpOptions: { baseUrl: TOOLSCOUT } });

const functionDeclarations = TOOLS.map(({ name, description, parameters }) => ({ name, description, parametersJsonSchema: parameters }));
const chat = client.chats.create({ model: "gemini-3-flash", config: { tools: [{ functionDeclarations }] } });
for (const question of QUESTIONS) {
  let answer = await chat.sendMessage({ message: question });
  while (answer.functionCalls && answer.functionCalls.length > 0) {
    const message = answer.functionCalls.map(({ name = "", args }) => ({ functionResponse: { name, response: { result: call(name, args) } } }));
    answer = await chat.sendMessage({ message });
  }
  console.log(answer.text);
}
