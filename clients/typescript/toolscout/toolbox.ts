// The tools that a model sees in one conversation, within a token budget.

import type * as Binding from "./binding.js";
import { Catalog } from "./catalog.js";
import { check, checkOptions, someTexts, texts } from "./checks.js";
import { calling, callingNow } from "./environment.js";
import { ToolscoutError } from "./errors.js";
import { binding } from "./native.js";
import { Hit, Results } from "./results.js";
import { Tool, type JsonObject, type ToolFormat } from "./tool.js";

/** Which tools go where new ones do not fit: the least recently used, the least often used, or none. */
export type Policy = "lru" | "lfu" | "none";
// What a function of a script takes is between it and its tool.
export type ToolFunction = (args: never) => unknown;

export interface ToolboxOptions {
  /** Most tokens of all visible tools; 8,000 if not given. */
  budget?: number;
  /** `lru` if not given. */
  policy?: Policy;
  /** Turns without use after which a tool goes at the end of a turn; 3 if not given. */
  idleTurns?: number;
  /** Most tools of a search whose model names no limit. */
  limit?: number;
  /** Most tools after the hits that a search names; 11 if not given, none with 0. `select:NAME` loads one. */
  moreTools?: number;
  /** Characters of the description of such a tool; 100 if not given. */
  moreChars?: number;
  /** Only tools of these servers. */
  servers?: string | readonly string[];
  /** Only tools with one of these tags. */
  tags?: string | readonly string[];
  /** What `call` calls, by the id or the name of the tool. */
  functions?: Readonly<Record<string, ToolFunction>>;
}

/** What is stored of a toolbox: JSON. */
export interface ToolboxState {
  version: number;
  options: JsonObject;
  pinned: string[];
  toolbox: JsonObject;
}

/** What an injection has done, by ids. */
export interface Injection {
  added: string[];
  /** Visible before. */
  already: string[];
  /** Tools that do not fit, with their tokens. */
  refused: [string, number][];
  evicted: string[];
}

/** What a call of `tool_search` has done. */
export interface Searched extends Injection {
  /** The answer for the model. */
  text: string;
  /** The ids of what was found, best first. */
  found: string[];
}

/** The arguments of a call of `tool_search`. */
export interface SearchArguments {
  query?: string;
  queries?: string[];
  limit?: number;
  server?: string;
}

/** The tool `tool_search`: its definition, and what calls it. */
export interface SearchTool {
  name: string;
  description: string;
  inputSchema: JsonObject;
  /** The definition in a provider's format. */
  to(format: ToolFormat): string | JsonObject;
  /** Searches, shows what was found, and answers with a text for the model. */
  call(args: SearchArguments | string): Promise<string>;
}

type Named = string | Tool | Hit;
/** Tools by id, name, definition or hit. */
export type ToolNames = Named | Results | readonly Named[];

const SEARCH = "tool_search";
const NOTHING: Searched = { text: "", found: [], added: [], already: [], refused: [], evicted: [] };
const OPTIONS = {
  budget: "number",
  policy: "string",
  idleTurns: "number",
  limit: "number",
  moreTools: "number",
  moreChars: "number",
  servers: "any",
  tags: "any",
  functions: "object",
};

/**
 * The tools that a model sees in one conversation: `tool_search`, and what it has found.
 *
 * Together they take at most `budget` tokens. Tools with an open call and those that were called in the last
 * two rounds stay. New tools go to the end of the list, so that the beginning of the prompt stays as it was.
 * It is the toolbox of the program's own agent.
 */
export class Toolbox {
  readonly #core: Binding.ToolboxCore;
  readonly #functions: Readonly<Record<string, ToolFunction>>;

  /** `core` is that of a state, which has its options. */
  constructor(catalog: Catalog, options: ToolboxOptions = {}, core?: Binding.ToolboxCore) {
    checkCatalog(catalog);
    checkOptions("Toolbox", options, OPTIONS);
    const { budget = 8000, policy = "lru", idleTurns = 3, limit, functions = {} } = options;
    const { moreTools = 11, moreChars = 100 } = options;
    whole("budget", budget);
    whole("idleTurns", idleTurns);
    if (limit !== undefined) whole("limit", limit);
    whole("moreTools", moreTools);
    whole("moreChars", moreChars);
    const servers = someTexts("servers", options.servers) ?? [];
    const tags = someTexts("tags", options.tags) ?? [];
    const more = { more_tools: moreTools, more_chars: moreChars };
    const known = { budget, policy, idle_turns: idleTurns, limit, ...more, servers, tags };
    this.#core = core ?? callingNow(() => catalog.toolboxCore(JSON.stringify(known)));
    this.#functions = functions;
  }

  /**
   * The toolbox of a state. Tools that the catalog no longer has are left out, and named in `missing`.
   * Changed tools have their definition of now.
   */
  static fromState(
    catalog: Catalog,
    state: ToolboxState | string,
    options: Pick<ToolboxOptions, "functions"> = {},
  ): Toolbox {
    checkCatalog(catalog);
    checkOptions("fromState", options, { functions: "object" });
    const text = typeof state === "string" ? state : JSON.stringify(state);
    const core = callingNow(() => catalog.restoredToolboxCore(text));
    return new Toolbox(catalog, options, core);
  }

  /** What `fromState` takes: JSON to store with the conversation. */
  state(): ToolboxState {
    return JSON.parse(callingNow(() => this.#core.state())) as ToolboxState;
  }

  /** The tools of the state that the catalog no longer has. */
  get missing(): string[] {
    return this.#core.missing;
  }

  /** The ids of the visible tools, in their order. */
  get ids(): string[] {
    return this.#visible().map(([id]) => id);
  }

  /** The names of the visible tools for the model, in their order. */
  get names(): string[] {
    return this.#visible().map(([, name]) => name);
  }

  /** The tokens of the visible tools, without `tool_search`, by OpenAI's `o200k_base`. */
  get tokens(): number {
    return this.#core.tokens;
  }

  #visible(): [string, string, number][] {
    return JSON.parse(callingNow(() => this.#core.visible())) as [string, string, number][];
  }

  /** The tool `tool_search`: its definition in any format, and what calls it. */
  searchTool(): SearchTool {
    const to = (format: ToolFormat) =>
      JSON.parse(callingNow(() => binding.toolSearchDefinition(format))) as string | JsonObject;
    const { name, description, inputSchema } = to("mcp") as Omit<SearchTool, "to" | "call">;
    const call = async (args: SearchArguments | string) => (await this.search(args)).text;
    return { name, description, inputSchema, to, call };
  }

  /** The tools of the next request to a model: `tool_search`, unless it is left out, then the visible ones. */
  tools(format: "names" | "signature", options?: { search?: boolean }): string[];
  tools(format: "mcp", options?: { search?: boolean }): { tools: JsonObject[] };
  tools(
    format?: Exclude<ToolFormat, "names" | "signature" | "mcp">,
    options?: { search?: boolean },
  ): JsonObject[];
  tools(format: ToolFormat = "openai", options: { search?: boolean } = {}): unknown {
    check("format", format, "string");
    checkOptions("tools", options, { search: "boolean" });
    const { search = true } = options;
    return JSON.parse(callingNow(() => this.#core.tools(format, search))) as unknown;
  }

  /**
   * Searches as a model's call of `tool_search` asks, and shows what was found. A query
   * `select:name_a,name_b` shows tools by name. A call that cannot be searched is answered with a text that
   * says how to search.
   */
  async search(args: SearchArguments | string): Promise<Searched> {
    const text = typeof args === "string" ? args : JSON.stringify(args);
    try {
      JSON.parse(text);
    } catch (error) {
      // The model's own JSON.
      return { ...NOTHING, text: `the arguments are no JSON: ${String(error)}` };
    }
    const searched = JSON.parse(await calling(() => this.#core.search(text))) as
      | Searched
      | { refused_search: string };
    return "refused_search" in searched ? { ...NOTHING, text: searched.refused_search } : searched;
  }

  /** Shows tools of the catalog; `unknown_tool` for one that it lacks. */
  async inject(tools: ToolNames): Promise<Injection> {
    return JSON.parse(await calling(() => this.#core.inject(named(tools)))) as Injection;
  }

  /** Shows tools for good, whatever the budget. */
  async pin(tools: ToolNames): Promise<void> {
    await calling(() => this.#core.pin(named(tools)));
  }

  /** Hides tools, and answers with the ids of those that are gone. Pinned tools stay. */
  evict(tools: ToolNames): string[] {
    return callingNow(() => this.#core.evict(named(tools)));
  }

  /** The visible tool that a model calls by this name. */
  find(name: string): Tool | undefined {
    const tool = callingNow(() => this.#core.find(name));
    return tool ? new Tool(tool) : undefined;
  }

  /**
   * Calls a tool while it is kept from eviction, and counts the call; `unknown_tool`, with a text for the
   * model, for a name that is not visible.
   */
  async calling<T>(name: string, call: (tool: Tool) => T | Promise<T>): Promise<T> {
    const native = callingNow(() => this.#core.openCall(name));
    if (!native) throw new ToolscoutError("unknown_tool", this.#noTool(name));
    const tool = new Tool(native);
    try {
      return await call(tool);
    } finally {
      this.#core.closeCall(tool.id);
    }
  }

  #noTool(name: string): string {
    if (callingNow(() => this.#core.unloaded(name)) !== null) {
      return `${name} was unloaded; call tool_search with the query \`select:${name}\``;
    }
    return `no visible tool is called ${JSON.stringify(name)}; find one with tool_search`;
  }

  /**
   * Calls a tool for a model: `tool_search`, or the function of a visible tool. `args` are an object, or JSON
   * as models write it.
   */
  async call(name: string, args: object | string = {}): Promise<unknown> {
    if (name === SEARCH) return (await this.search(args)).text;
    return this.calling(name, (tool) => {
      const run = this.#function(tool);
      const given = argumentsOf(name, args);
      const problem = callingNow(() => this.#core.argumentsProblem(name, JSON.stringify(given)));
      if (problem !== null) throw new ToolscoutError("invalid_arguments", problem);
      return run(given as never);
    });
  }

  #function({ id, name, modelName }: Tool): ToolFunction {
    const known = [id, name, modelName].find((key) => Object.hasOwn(this.#functions, key));
    const found = known === undefined ? undefined : this.#functions[known];
    if (found) return found;
    const message =
      `nothing says how ${id} is called; give it in \`functions\`, or call it yourself within ` +
      "`toolbox.calling`";
    throw new ToolscoutError("no_function", message);
  }

  /** Begins a turn: a question of the user. */
  beginTurn(): void {
    this.#core.beginTurn();
  }

  /** Ends a turn, and answers with the ids of tools that go since they were idle for `idleTurns`. */
  endTurn(): string[] {
    return this.#core.endTurn();
  }
}

function checkCatalog(catalog: unknown): void {
  if (!(catalog instanceof Catalog)) {
    throw new TypeError("catalog must be a Catalog; open one with Catalog.open");
  }
}

function whole(name: string, value: number): void {
  if (!Number.isSafeInteger(value)) {
    const message = `${name} is ${value}, it must be a whole number`;
    throw new ToolscoutError("invalid_toolbox", message);
  }
}

function named(tools: ToolNames): string[] {
  if (typeof tools === "string") return [tools];
  const list = tools instanceof Tool || tools instanceof Hit ? [tools] : [...tools];
  return texts(
    "tools",
    list.map((tool) => (tool instanceof Tool || tool instanceof Hit ? tool.id : tool)),
  );
}

function argumentsOf(name: string, args: object | string): object {
  let value: unknown = args;
  if (typeof args === "string") {
    try {
      value = JSON.parse(args === "" ? "{}" : args);
    } catch (error) {
      const message = `the arguments of ${name} are no JSON: ${String(error)}`;
      throw new ToolscoutError("invalid_arguments", message);
    }
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new ToolscoutError("invalid_arguments", `the arguments of ${name} are no JSON object`);
}
