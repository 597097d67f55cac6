import { fileURLToPath } from "node:url";

import type { components } from "./api_types.js";
import type * as Binding from "./binding.js";
import { check, checkOptions, kind, someTexts, texts } from "./checks.js";
import { calling, callingNow, ending, environment, type LongCall } from "./environment.js";
import { warnDeprecated } from "./errors.js";
import type { Evaluation } from "./evaluation.js";
import { queryLines, readTools, type Queries, type Tools } from "./input.js";
import { type Kind, Results } from "./results.js";
import { Tool } from "./tool.js";

type Schemas = components["schemas"];

export interface OpenOptions {
  /** The catalog in the data directory. */
  name?: string;
  /** Its embedders, as `--embedder`. */
  embedder?: string;
  /** The configuration file. */
  config?: string | URL;
  /** Whether it is created where it does not exist; true if not given. */
  create?: boolean;
}

export interface WriteOptions extends LongCall {
  /** Only these: operations or names, tags, or paths (`/pets/*`). */
  include?: string | readonly string[];
  /** None of these. */
  exclude?: string | readonly string[];
  /** Whether to embed the tools now; true if not given. */
  embed?: boolean;
}

export interface AddOptions extends WriteOptions {
  /** The server of all of them. */
  server?: string;
  /** Leaves out what is no valid tool, and says what that is. */
  skipInvalid?: boolean;
}

export interface SearchOptions {
  /** Most hits, 1 to 50. */
  limit?: number;
  mode?: "lexical" | "dense" | "hybrid" | "auto";
  /** What may be found; tools alone if not given. */
  kinds?: Kind | readonly Kind[];
  /** Only tools of these servers. */
  servers?: string | readonly string[];
  /** Only tools with one of these tags. */
  tags?: string | readonly string[];
  /** Only these tools. */
  ids?: string | readonly string[];
  readOnly?: boolean;
  destructive?: boolean;
  /** Hits say how they got their score. */
  explain?: boolean;
  /** Near-duplicates on several servers are one hit. */
  foldDuplicates?: boolean;
  /** The request is one need, and is not split. */
  whole?: boolean;
  /** Whether the ranker takes part; true if not given. */
  ranker?: boolean;
  /** Less is done where time is short. */
  budgetMs?: number;
  minConfidence?: number;
  minScore?: number;
  fusion?: "convex" | "rrf";
  denseWeight?: number;
  /** Whether tools that find what a hit needs are put behind it; true if not given. */
  companions?: boolean;
}

export interface EvaluateOptions extends Pick<SearchOptions, "mode" | "ranker"> {
  signal?: AbortSignal;
}

/** The effect of a write: ids, sorted, and counts. */
export type Changes = Binding.Changes;
/** An item that is no valid tool, and was left out. */
export type Skipped = Binding.Skipped;

/** Sizes of a catalog. */
export interface Stats {
  tools: number;
  servers: Record<string, number>;
  generation: number;
  /** Number of vectors by embedder. */
  vectors: Record<string, number>;
  pendingEmbeddings: number;
  diskBytes: number;
}

const TEMPORARY = { embedder: "string", config: "string or URL" };
const OPEN = { name: "string", ...TEMPORARY, create: "boolean" };
const LONG = { signal: "object or null", progress: "function or null" };
const SYNC = { include: "any", exclude: "any", embed: "boolean", ...LONG };
const ADD = { server: "string or null", skipInvalid: "boolean", ...SYNC };
const EVAL = { mode: "string or null", ranker: "boolean", signal: LONG.signal };
const LIST = { servers: "any", tags: "any" };
const SEARCH = {
  limit: "number",
  mode: "string",
  kinds: "any",
  ...LIST,
  ids: "any",
  readOnly: "boolean",
  destructive: "boolean",
  explain: "boolean",
  foldDuplicates: "boolean",
  whole: "boolean",
  ranker: "boolean",
  budgetMs: "number",
  minConfidence: "number",
  minScore: "number",
  fusion: "string",
  denseWeight: "number",
  companions: "boolean",
};
/** Tools that are read at a time. */
const PAGE = 256;

/**
 * An open catalog: tools on disk, and search in them.
 *
 * The engine works beside the script, on Node's threads. What another process or worker has written is
 * found by the next search. Writes of one catalog wait for each other.
 */
export class Catalog {
  readonly #native: Binding.Catalog;
  #writes: Promise<unknown> = Promise.resolve();

  private constructor(native: Binding.Catalog) {
    this.#native = native;
  }

  /**
   * Opens a catalog as the command line does: `path` is the data directory (`--data`). What is not given
   * comes from the environment, the file and the defaults of the program.
   */
  static async open(path?: string | URL, options: OpenOptions = {}): Promise<Catalog> {
    if (path !== undefined) check("path", path, "string or URL");
    checkOptions("open", options, OPEN);
    const { name, embedder, config, create = true } = options;
    const opening = { data: file(path), name, embedder, config: file(config), create };
    return new Catalog(await calling(() => environment.open({ ...opening, temporary: false })));
  }

  /** Opens an empty catalog in a folder of its own, which is deleted when the catalog is closed. */
  static async temporary(
    options: Pick<OpenOptions, "embedder" | "config"> = {},
  ): Promise<Catalog> {
    checkOptions("temporary", options, TEMPORARY);
    const { embedder, config } = options;
    const opening = { name: "default", embedder, config: file(config), create: true };
    return new Catalog(await calling(() => environment.open({ ...opening, temporary: true })));
  }

  get name(): string {
    return this.#native.name;
  }

  /** The catalog's folder. */
  get path(): string {
    return this.#native.path;
  }

  get closed(): boolean {
    return this.#native.closed;
  }

  /** Closes the catalog. Searches under way finish; later calls fail with `catalog_closed`. */
  close(): Promise<void> {
    return calling(() => this.#native.close());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  [Symbol.dispose](): void {
    this.#native.closeNow();
  }

  /**
   * Adds tools, or replaces those with the same id. Nothing is added if one is invalid, unless
   * `skipInvalid`. Then embeds them, unless `embed` is false. A signal before the commit adds nothing, and
   * while embedding keeps what was embedded.
   */
  async add(tools: Tools, options: AddOptions = {}): Promise<Changes> {
    checkOptions("add", options, ADD);
    const { server, skipInvalid = false, embed = true } = options;
    const input = await this.#read(tools, server, skipInvalid, options);
    return this.#write(() =>
      ending(options, (cancellation, report) =>
        this.#native.add(input, embed, cancellation, report),
      ),
    );
  }

  /** Replaces all tools of a server by these. */
  async sync(server: string, tools: Tools, options: WriteOptions = {}): Promise<Changes> {
    check("server", server, "string");
    checkOptions("sync", options, SYNC);
    const { embed = true } = options;
    const input = await this.#read(tools, server, false, options);
    return this.#write(() =>
      ending(options, (cancellation, report) =>
        this.#native.sync(server, input, embed, cancellation, report),
      ),
    );
  }

  /** Removes tools by id. Ids that the catalog does not have are left out of `removed`. */
  async remove(ids: string | readonly string[]): Promise<Changes> {
    const list = texts("ids", ids);
    return this.#write(() =>
      ending({}, (cancellation) => this.#native.remove(list, cancellation)),
    );
  }

  /**
   * Embeds the tools that have no vectors yet, and answers with the number of texts that were embedded. A
   * signal, and whatever `progress` throws, ends it and keeps what was embedded.
   */
  async embed(options: LongCall = {}): Promise<number> {
    checkOptions("embed", options, LONG);
    return this.#write(() =>
      ending(options, (cancellation, report) => this.#native.embed(cancellation, report)),
    );
  }

  /**
   * Finds the tools that fit a request in plain words, or an exact name; several requests at once are
   * merged into one list. What is not given comes from the settings, then from the catalog.
   */
  async search(query: string | readonly string[], options: SearchOptions = {}): Promise<Results> {
    checkOptions("search", options, SEARCH);
    const queries = texts("query", query);
    const request = {
      ...options,
      queries,
      kinds: someTexts("kinds", options.kinds),
      servers: someTexts("servers", options.servers),
      tags: someTexts("tags", options.tags),
      ids: someTexts("ids", options.ids),
    };
    return new Results(queries, await calling(() => this.#native.search(request)));
  }

  /** Measures how well the catalog answers judged queries, searched for with this mode and ranker. */
  async evaluate(queries: Queries, options: EvaluateOptions = {}): Promise<Evaluation> {
    checkOptions("evaluate", options, EVAL);
    const { mode, ranker = true, signal } = options;
    const lines = await queryLines(queries);
    const answer = await ending({ signal }, (cancellation) =>
      this.#native.eval(lines, mode, ranker, cancellation),
    );
    return JSON.parse(answer) as Evaluation;
  }

  /** @deprecated The former name of `evaluate`. */
  async eval(queries: Queries, options: EvaluateOptions = {}): Promise<Evaluation> {
    warnDeprecated("Catalog.eval is now called Catalog.evaluate");
    return this.evaluate(queries, options);
  }

  /**
   * Remembers that a tool of these results was used, so that similar requests find it. `remembered` is false
   * while the usage memory is off.
   */
  async feedback(results: Results, tool: string): Promise<Schemas["FeedbackAnswer"]> {
    if (!(results instanceof Results)) {
      throw new TypeError(`results must be the Results of a search, not ${kind(results)}`);
    }
    check("tool", tool, "string");
    return this.#answer(() => this.#native.feedback([...results.queries], results.ids, tool));
  }

  /** The entries of the usage memory: requests and the tools that were used for them. */
  async memory(): Promise<Schemas["MemoryEntry"][]> {
    return this.#answer(() => this.#native.memory());
  }

  /** Switches the usage memory on or off; its entries stay. */
  async setMemory(enabled: boolean): Promise<Schemas["MemorySwitch"]> {
    check("enabled", enabled, "boolean");
    return this.#answer(() => this.#native.setMemory(enabled));
  }

  /** Deletes entries of the usage memory: those of a tool, those of a request, or all. */
  async forget(which: { tool?: string; query?: string } = {}): Promise<Schemas["Forgotten"]> {
    checkOptions("forget", which, { tool: "string", query: "string" });
    return this.#answer(() => this.#native.forget(which.tool, which.query));
  }

  /** The owner's words: aliases, synonyms, pins, boosts and descriptions. */
  async words(): Promise<Schemas["WordsAnswer"]> {
    return this.#answer(() => this.#native.words());
  }

  /** Replaces the owner's words. */
  async setWords(words: Schemas["Words"]): Promise<Schemas["WordsAnswer"]> {
    check("words", words, "object");
    return this.#write(() => this.#answer(() => this.#native.setWords(JSON.stringify(words), false)));
  }

  /** Changes the owner's words by a JSON merge patch: `null` removes an entry. */
  async patchWords(patch: object): Promise<Schemas["WordsAnswer"]> {
    check("patch", patch, "object");
    return this.#write(() => this.#answer(() => this.#native.setWords(JSON.stringify(patch), true)));
  }

  /** The settings: the defaults of searches. */
  async settings(): Promise<Schemas["CatalogSettings"]> {
    return this.#answer(() => this.#native.settings());
  }

  /** Replaces the settings. */
  async setSettings(settings: Schemas["CatalogSettings"]): Promise<Schemas["CatalogSettings"]> {
    check("settings", settings, "object");
    return this.#write(() => this.#answer(() => this.#native.setSettings(JSON.stringify(settings))));
  }

  /** The servers with the number of their tools. */
  async servers(): Promise<{ name: string; tools: number }[]> {
    return this.#answer(() => this.#native.servers());
  }

  async #answer<T>(call: () => Promise<string>): Promise<T> {
    return JSON.parse(await calling(call)) as T;
  }

  /** @internal */
  toolboxCore(options: string): Binding.ToolboxCore {
    return this.#native.toolbox(options);
  }

  /** @internal */
  restoredToolboxCore(state: string): Binding.ToolboxCore {
    return this.#native.restoredToolbox(state);
  }

  /**
   * The tools in the order of their ids, as the catalog is when the first one is asked for: all, or those
   * of servers and with tags.
   */
  async *tools(
    options: Pick<SearchOptions, "servers" | "tags"> = {},
  ): AsyncGenerator<Tool, void, undefined> {
    checkOptions("tools", options, LIST);
    const servers = someTexts("servers", options.servers);
    const tags = someTexts("tags", options.tags);
    const pages = await calling(() => this.#native.tools(servers, tags));
    for (;;) {
      const page = await calling(() => pages.next(PAGE));
      if (page.length === 0) return;
      for (const tool of page) yield new Tool(tool);
    }
  }

  [Symbol.asyncIterator](): AsyncGenerator<Tool, void, undefined> {
    return this.tools();
  }

  /** The tool with this id; `undefined` where there is none. */
  async get(id: string): Promise<Tool | undefined> {
    check("id", id, "string");
    const tool = await calling(() => this.#native.get(id));
    return tool ? new Tool(tool) : undefined;
  }

  async stats(): Promise<Stats> {
    const stats = JSON.parse(await calling(() => this.#native.stats())) as Omit<
      Stats,
      "servers" | "vectors"
    > & { servers: [string, number][]; vectors: [string, number][] };
    return {
      ...stats,
      servers: Object.fromEntries(stats.servers),
      vectors: Object.fromEntries(stats.vectors),
    };
  }

  async #read(
    tools: Tools,
    server: string | undefined,
    skipInvalid: boolean,
    selection: WriteOptions,
  ) {
    const include = someTexts("include", selection.include) ?? [];
    const exclude = someTexts("exclude", selection.exclude) ?? [];
    const input = callingNow(() => this.#native.input(server, skipInvalid, include, exclude));
    await calling(() => readTools(input, tools));
    return input;
  }

  /** Makes a write when those before it are done, without a thread that waits. */
  #write<T>(write: () => Promise<T>): Promise<T> {
    const written = this.#writes.then(write);
    this.#writes = written.catch(() => undefined);
    return written;
  }
}

function file(path: string | URL | undefined): string | undefined {
  return path instanceof URL ? fileURLToPath(path) : path;
}
