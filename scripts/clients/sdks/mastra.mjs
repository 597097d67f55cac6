import { appendFileSync, readFileSync } from "node:fs";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

const [, , url, calls, toolsFile] = process.argv;
const definitions = JSON.parse(readFileSync(toolsFile, "utf8"));
const tools = Object.fromEntries(
  definitions.map(({ name, description }) => [
    name,
    createTool({
      id: name,
      description,
      inputSchema: z.object({ id: z.string(), note: z.string().optional() }),
      execute: async () => {
        appendFileSync(calls, `${name}\n`);
        return { text: `the office has done ${name}` };
      },
    }),
  ]),
);

const agent = new Agent({
  id: "office",
  name: "office",
  instructions: "You work in an office.",
  model: { id: "toolscout/gpt-5.4-mini", url: `${url}/v1`, apiKey: "key" },
  tools,
});
const answer = await agent.stream("Archive invoice 7 and cancel shipment 7.", { maxSteps: 20 });
for await (const part of answer.textStream) process.stdout.write(part);
