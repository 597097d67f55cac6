/** Conversations over @google/genai, whole and streamed. Reads what to do as JSON, and prints what the client saw. */

import { GoogleGenAI } from "@google/genai";

let given = "";
for await (const piece of process.stdin.setEncoding("utf8")) given += piece;
const { url, tools, questions, refused, cut } = JSON.parse(given);
const client = new GoogleGenAI({ apiKey: "unused", httpOptions: { baseUrl: url, timeout: 30_000 } });
const functionDeclarations = tools.map(({ name, description, schema }) => ({ name, description, parametersJsonSchema: schema }));
const config = { tools: [{ functionDeclarations }] };

async function round(contents, streams) {
  const asked = { model: "m", contents, config };
  if (!streams) {
    const { candidates } = await client.models.generateContent(asked);
    return candidates[0].content.parts;
  }
  const parts = [];
  for await (const { candidates } of await client.models.generateContentStream(asked)) parts.push(...(candidates?.[0].content?.parts ?? []));
  return parts;
}

async function ask(contents, question, streams) {
  contents.push({ role: "user", parts: [{ text: question }] });
  for (;;) {
    const parts = await round(contents, streams);
    contents.push({ role: "model", parts });
    const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
    if (calls.length === 0) return parts.map(({ text }) => text ?? "").join("");
    contents.push({ role: "user", parts: calls.map(({ name }) => ({ functionResponse: { name, response: { result: `${name} went well` } } })) });
  }
}

async function conversation(streams) {
  const [contents, answers] = [[], []];
  for (const question of questions) answers.push(await ask(contents, question, streams));
  return answers;
}

const failure = (asking) => asking.then((answer) => ({ answer }), (error) => ({ error }));
const seen = { whole: await conversation(false), stream: await conversation(true) };
seen.refused = (await failure(ask([], refused, false))).error?.status;
seen.cut = String((await failure(ask([], cut, true))).error ?? "");
console.log(JSON.stringify(seen));
