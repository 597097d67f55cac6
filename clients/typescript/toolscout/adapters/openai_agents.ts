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
import { Shown, ToolIndex, type ToolSearchOptions } from "./tool_index.js";

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
 * that the beginning of a prompt stays as it was. They take at most `budget` tokens: the toolbox of the
 * program's agent evicts those that were not used for longest.
 */
export class ToolSearchAgent extends Agent {
  readonly #byName: Map<string, FunctionTool>;
  readonly #shown: Shown;
  readonly #search: Tool;

  constructor(configuration: Configuration & ToolSearchConfiguration) {
    const { searchable, catalog, limit, embedder, budget, policy, ...agent } = configuration;
    super(agent);
    this.#byName = new Map(searchable.map((tool) => [tool.name, tool]));
    const definitions = searchable.map(({ name, description, parameters }) => ({
      name,
      description,
      inputSchema: parameters as JsonObject,
    }));
    const options = { catalog, limit, embedder, budget, policy };
    const index = new ToolIndex([...this.#byName.keys()], () => Promise.resolve(definitions), options);
    this.#shown = new Shown(index, options);
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
      execute: (input) => this.#shown.search((input as { query: string }).query),
    });
  }

  override async getAllTools(...asked: Parameters<Agent["getAllTools"]>): Promise<Tool[]> {
    const always = await super.getAllTools(...(asked as [RunContext]));
    const found = (await this.#shown.names()).flatMap((name) => this.#byName.get(name) ?? []);
    // What is listed now is for the next answer, whose calls are of another round.
    if (found.length > 0) await this.#shown.answered([]);
    return [...always, this.#search, ...found.map((tool) => this.#noted(tool))];
  }

  /** A tool that notes its calls. */
  #noted(tool: FunctionTool): FunctionTool {
    const invoke: FunctionTool["invoke"] = async (...given) => {
      await this.#shown.called(tool.name);
      return tool.invoke(...given);
    };
    return { ...tool, invoke };
  }
}
