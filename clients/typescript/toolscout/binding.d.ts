/* The native module. Generated from its source by generate_types.mjs. */

/** Ends work early, between two of its steps. */
export declare class Cancellation {
  /** Ends the work. */
  cancel(): void
}

/** An open catalog. */
export declare class Catalog {
  /** Its name. */
  get name(): string
  /** Its folder. */
  get path(): string
  /** Whether it was closed. */
  get closed(): boolean
  /** Closes it. Calls under way finish. */
  close(): Promise<void>
  /** Closes it before the call returns. */
  closeNow(): void
  /** Begins to read tools that are to be written. */
  input(server: string | undefined | null, skipInvalid: boolean, include: Array<string>, exclude: Array<string>): Input
  /** Adds what was read, or replaces what has the same ids. */
  add(input: Input, embed: boolean, cancellation: Cancellation, progress: (done: number, total: number) => boolean): Promise<Changes>
  /** Replaces all tools of a server by what was read. */
  sync(server: string, input: Input, embed: boolean, cancellation: Cancellation, progress: (done: number, total: number) => boolean): Promise<Changes>
  /** Removes tools by id. */
  remove(ids: Array<string>, cancellation: Cancellation): Promise<Changes>
  /** Embeds the tools that have no vectors yet, and returns the number of texts that were embedded. */
  embed(cancellation: Cancellation, progress: (done: number, total: number) => boolean): Promise<number>
  /** Finds tools. */
  search(request: SearchRequest): Promise<Results>
  /** Measures how well it answers judged queries, which are lines of JSON; answers with JSON. */
  eval(queries: string, mode: string | undefined | null, ranker: boolean, cancellation: Cancellation): Promise<string>
  /** Remembers that a tool was used for a request: `recorded` and `remembered`, as JSON. */
  feedback(queries: Array<string>, hits: Array<string>, tool: string): Promise<string>
  /** The entries of the usage memory, as JSON. */
  memory(): Promise<string>
  /** Switches the usage memory on or off. */
  setMemory(enabled: boolean): Promise<string>
  /** Deletes entries of the usage memory: those of a tool, those of a request, or all. */
  forget(tool?: string | undefined | null, query?: string | undefined | null): Promise<string>
  /** The owner's words, as JSON. */
  words(): Promise<string>
  /** Replaces the owner's words, or changes them by a JSON merge patch. */
  setWords(words: string, isPatch: boolean): Promise<string>
  /** The settings, as JSON. */
  settings(): Promise<string>
  /** Replaces the settings. */
  setSettings(settings: string): Promise<string>
  /** The servers with the number of their tools, as JSON. */
  servers(): Promise<string>
  /** An empty toolbox with options in JSON. */
  toolbox(options: string): ToolboxCore
  /** The toolbox of a state in JSON. */
  restoredToolbox(state: string): ToolboxCore
  /** The tools as they are now: all, or those of servers and with tags. */
  tools(servers?: Array<string> | undefined | null, tags?: Array<string> | undefined | null): Promise<ToolPages>
  /** The tool with this id. */
  get(id: string): Promise<Tool | null>
  /** Sizes, as JSON. */
  stats(): Promise<string>
}

/** The environment of a script. Work under way ends with it, and temporary catalogs leave nothing. */
export declare class Environment {
  /** The environment of the calling script. */
  constructor()
  /** Opens a catalog. */
  open(opening: Opening): Promise<Catalog>
  /** Makes what can end a call early. */
  cancellation(): Cancellation
  /** Ends all work, and closes all catalogs. */
  end(): void
}

/** The input of a write, which is read part by part before the write begins. */
export declare class Input {
  /** Reads the next items of a list, which are a list of JSON. */
  items(json: string, count: number): Promise<void>
  /** Reads JSON, NDJSON or YAML. */
  text(text: string): Promise<void>
  /** Ends reading. */
  finish(): void
  /** Reads a file, a folder or a URL. */
  location(location: string): Promise<void>
}

/** The answer to a search. */
export declare class Results {
  /** Everything but the hits, as JSON. */
  answer(): string
  /** The hits as JSON, best first. */
  hits(): string
  /** The tool of a hit, by its position from 0. */
  tool(position: number): Tool
  /** The found tools in a provider's format, as JSON, within so many tokens. */
  tools(format: string, maxTokens?: number | undefined | null): string
}

/** The definition of a tool. */
export declare class Tool {
  /** Its fields as JSON. */
  json(): string
  /** The definition in a provider's format, as JSON. */
  to(format: string): string
}

/** The visible tools of a conversation, over a catalog. */
export declare class ToolboxCore {
  /** The tools of the state that the catalog no longer has. */
  get missing(): Array<string>
  /** The options. */
  options(): string
  /** Searches with the arguments of a model's call, in JSON, and shows what was found. */
  search(arguments: string): Promise<string>
  /** Shows tools by id or name. */
  inject(names: Array<string>): Promise<string>
  /** Shows tools for good. */
  pin(names: Array<string>): Promise<void>
  /** Hides tools by id or name. */
  evict(names: Array<string>): Array<string>
  /** The visible tool with this name. */
  find(name: string): Tool | null
  /** The id of the evicted tool with this name. */
  unloaded(name: string): string | null
  /** Marks a call as begun. */
  openCall(name: string): Tool | null
  /** What is wrong with arguments in JSON for the visible tool with this name. */
  argumentsProblem(name: string, arguments: string): string | null
  /** Marks a call as ended. */
  closeCall(id: string): void
  /** Begins a turn. */
  beginTurn(): void
  /** Ends a turn, and returns what was evicted. */
  endTurn(): Array<string>
  /** The definitions for a request. */
  tools(format: string, withSearch: boolean): string
  /** Id, name and tokens of each visible tool. */
  visible(): string
  /** Tokens of all visible tools. */
  get tokens(): number
  /** The state. */
  state(): string
}

/** The tools of a catalog as it was when the iteration began, in the order of their ids. */
export declare class ToolPages {
  /** The next ones, at most so many; none at the end. */
  next(most: number): Promise<Array<Tool>>
}

/** The effect of a write: ids, sorted, and counts. */
export interface Changes {
  /** New tools. */
  added: Array<string>
  /** Replaced tools. */
  changed: Array<string>
  /** Removed tools. */
  removed: Array<string>
  /** Number of tools that were already stored as they are. */
  unchanged: number
  /** Items that were left out, with `skipInvalid`. */
  skipped: Array<Skipped>
  /** Number of texts that were embedded. */
  embedded: number
  /** The generation of the catalog that has the changes. */
  generation: number
}

/** Where a catalog is, and how it is opened. */
export interface Opening {
  /** The data directory; that of the settings where not given. */
  data?: string
  /** Its name; that of the settings where not given. */
  name?: string
  /** Its embedders; its own or those of the settings where not given. */
  embedder?: string
  /** The configuration file. */
  config?: string
  /** Whether it is created where it does not exist. */
  create: boolean
  /** Whether it is in a folder that is deleted with it. */
  temporary: boolean
}

/**
 * Runs the program with these arguments, and returns its exit code. `program` is the file that starts it
 * again.
 */
export declare function runProgram(arguments: Array<string>, program?: string | undefined | null): number

/** What a search looks for. */
export interface SearchRequest {
  /** The texts. */
  queries: Array<string>
  /** Most hits. */
  limit?: number
  /** The legs. */
  mode?: string
  /** How the legs are combined. */
  fusion?: string
  /** The weight of the dense legs. */
  denseWeight?: number
  /** The least score. */
  minScore?: number
  /** The least confidence. */
  minConfidence?: number
  /** Whether tools that find what a hit needs are put behind it. */
  companions?: boolean
  /** Only of these kinds; tools alone by default. */
  kinds?: Array<string>
  /** Only of these servers. */
  servers?: Array<string>
  /** Only with one of these tags. */
  tags?: Array<string>
  /** Only these. */
  ids?: Array<string>
  /** Only those that read. */
  readOnly?: boolean
  /** Only those that may destroy. */
  destructive?: boolean
  /** Time for the search. */
  budgetMs?: number
  /** Whether hits say how they got their score. */
  explain?: boolean
  /** Whether near-duplicates are one hit. */
  foldDuplicates?: boolean
  /** Whether the request is taken as one need. */
  whole?: boolean
  /** Whether the ranker takes part. */
  ranker?: boolean
}

/** An item that is no valid tool, and was left out. */
export interface Skipped {
  /** Its position in the input, from 1. */
  position?: number
  /** Its name, where it has one. */
  name?: string
  /** Why it is no valid tool. */
  error: string
}

/** The definition of `tool_search` in a format. */
export declare function toolSearchDefinition(format: string): string
