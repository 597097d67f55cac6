// Adds tools to a server, searches, and asks its agent.
//
//     npm install toolscout
//     toolscout serve --llm ollama --model qwen3

import { Client } from "toolscout/client";

const tools = [
  { name: "send_email", description: "Sends an email to one or more recipients." },
  { name: "create_event", description: "Creates an event in a calendar." },
];

const client = new Client(process.argv[2], { catalog: "default" });
await client.add(tools, { server: "office" });
const answer = await client.search("write a mail to Ada", { limit: 3, format: "openai" });
console.log(answer.hits[0]?.id);
await client.feedback(answer, "office/send_email");

for await (const event of client.ask("Send Ada the minutes, please.")) {
  if (event.type === "text") process.stdout.write(event.content);
  if (event.type === "done") console.log(`\n${event.status}`);
}
