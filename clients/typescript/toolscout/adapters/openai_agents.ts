/**
 * OpenAI Agents: an agent that searches its tools on the client's side.
 *
 * @example
 * const agent = new ToolSearchAgent({ name: "assistant", searchable: tools });
 *
 * @module
 */
import { Agent, tool, type FunctionTool, type RunContext, type Tool } from "@openai/agents";

import type { JsonObject } from "../index.js";
import { ToolIndex, type ToolSearchOptions } from "./tool_index.js";

export type { ToolSearchOptions };

type Configuration = ConstructorParameters<typeof Agent<unknown, "text">>[0];

export interface ToolSearchConfiguration extends ToolSearchOptions {
  /** The tools that are shown once they are found; those in `tools` always are. */
  searchable: FunctionTool[];
}

/**
 * An agent whose model sees `tool_search`, and of `searchable` what it has found.
 *
 * One agent is for one conversation: it remembers what was found. Found tools follow those before them, so
 * that the beginning of a prompt stays as it was.
 */
export class ToolSearchAgent extends Agent {
  readonly #found = new Map<string, FunctionTool>();
  readonly #search: Tool;

  constructor(configuration: Configuration & ToolSearchConfiguration) {
    const { searchable, catalog, limit, embedder, ...agent } = configuration;
    super(agent);
    const byName = new Map(searchable.map((tool) => [tool.name, tool]));
    const definitions = searchable.map(({ name, description, parameters }) => ({
      name,
      description,
      inputSchema: parameters as JsonObject,
    }));
    const index = new ToolIndex([...byName.keys()], () => Promise.resolve(definitions), {
      catalog,
      limit,
      embedder,
    });
    this.#search = tool({
      name: "tool_search",
      description: "Finds tools by what they do. They can be called from the next step on.",
      parameters: {
        type: "object",
        properties: { query: { type: "string", description: "What the tool should do, in a few words." } },
        required: ["query"],
        additionalProperties: false,
      },
      strict: true,
      execute: async (input) => {
        const names = await index.find((input as { query: string }).query);
        for (const name of names) {
          const found = byName.get(name);
          if (found) this.#found.set(name, found);
        }
        return names.length > 0 ? `Found: ${names.join(", ")}` : "No tool fits; try other words.";
      },
    });
  }

  override async getAllTools(...asked: Parameters<Agent["getAllTools"]>): Promise<Tool[]> {
    const always = await super.getAllTools(...(asked as [RunContext]));
    return [...always, this.#search, ...this.#found.values()];
  }
}
