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
  input(server: string | undefined | null, skipInvalid: boolean): Input
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
