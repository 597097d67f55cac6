/**
 * Vercel AI SDK: the model sees `tool_search`, and from the next step on what it has found.
 *
 * @example
 * const search = toolSearch(tools);
 * await generateText({ model, messages, stopWhen: isStepCount(8), ...search });
 *
 * @module
 */
import { asSchema, jsonSchema, tool, type ModelMessage, type Tool, type ToolSet } from "ai";

import type { JsonObject } from "../index.js";
import { Shown, ToolIndex, type Definition, type ToolSearchOptions } from "./tool_index.js";

export type { ToolSearchOptions };

const SEARCH = "tool_search";

export interface ToolSearch {
  /** All tools, and the search. */
  tools: ToolSet;
  /** Shows the model those that it has found. */
  prepareStep(step: {
    messages: ModelMessage[];
  }): Promise<{ activeTools: string[]; toolOrder: string[] }>;
}

/**
 * Makes the options of `generateText`, `streamText` or an agent that let a model search these tools.
 *
 * What was found is read from the messages, so one search serves any number of conversations. Found tools
 * follow those before them, so that the beginning of a prompt stays as it was. They take at most `budget`
 * tokens: the toolbox of the program's agent evicts those of earlier turns.
 */
export function toolSearch(tools: ToolSet, options: ToolSearchOptions = {}): ToolSearch {
  const definitions = () => Promise.all(Object.entries(tools).map(definition));
  const index = new ToolIndex(Object.keys(tools), definitions, options);
  const search = tool({
    description: "Finds tools by what they do. They can be called from the next step on.",
    inputSchema: jsonSchema<{ query: string }>({
      type: "object",
      properties: { query: { type: "string", description: "What the tool should do, in a few words." } },
      required: ["query"],
      additionalProperties: false,
    }),
    execute: async ({ query }) => ({ found: await index.find(query) }),
  });
  return {
    tools: { [SEARCH]: search, ...tools },
    async prepareStep({ messages }) {
      const shown = new Shown(index, options);
      for (const message of messages) await replay(shown, message);
      const names = [SEARCH, ...(await shown.names())];
      return { activeTools: names, toolOrder: names };
    },
  };
}

/** Does again what a message did to the toolbox. */
async function replay(shown: Shown, message: ModelMessage): Promise<void> {
  if (message.role === "user") await shown.beginTurn();
  if (message.role === "assistant") {
    const parts = typeof message.content === "string" ? [] : message.content;
    await shown.answered(parts.flatMap((part) => (part.type === "tool-call" ? part.toolName : [])));
  }
  if (message.role !== "tool") return;
  for (const part of message.content) {
    if (part.type !== "tool-result" || part.toolName !== SEARCH) continue;
    const value = part.output.type === "json" ? (part.output.value as { found?: string[] }) : null;
    await shown.show(value?.found ?? []);
  }
}

async function definition([name, { description, inputSchema }]: [string, Tool]): Promise<Definition> {
  const schema = (await asSchema(inputSchema).jsonSchema) as JsonObject;
  return { name, description: typeof description === "string" ? description : "", inputSchema: schema };
}
