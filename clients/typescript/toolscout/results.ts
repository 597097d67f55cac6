import type * as Binding from "./binding.js";
import { check, checkOptions } from "./checks.js";
import { callingNow } from "./environment.js";
import { Tool, type JsonObject, type ToolFormat } from "./tool.js";

/** Something that was asked for could not take part. */
export interface Degraded {
  code: string;
  reason: string;
  pending_embeddings: number;
}

/** Nothing matches. */
export interface NoMatch {
  code: string;
  reason: string;
  /** The ids of the nearest tools. */
  nearest: string[];
}

/** The hit that a tool finds something for. */
export interface CompanionOf {
  /** The hit. */
  id: string;
  /** The parameter of the hit that the tool finds a value for. */
  parameter: string;
  reason: string;
}

/** What an item of a catalog is. */
export type Kind = "tool" | "prompt" | "resource" | "skill" | "agent";

interface HitFields {
  id: string;
  kind?: Kind;
  name: string;
  server: string;
  description: string;
  model_name: string;
  score: number;
  matched_queries: number[];
  serves?: string;
  also_on?: string[];
  companion_of?: CompanionOf;
  explain?: JsonObject;
}

/**
 * How well the hits serve a request: `none` if probably no tool does what was asked for. The hits, if
 * there are any, are then the nearest tools.
 */
export type Match = "good" | "possible" | "none";

interface AnswerFields {
  mode: "lexical" | "dense" | "hybrid";
  variant: string;
  embedders: string[];
  degraded?: Degraded;
  no_match?: NoMatch;
  match: Match;
  advice: string;
  unmatched: string[];
  better_hidden: number;
  confidence?: number;
  signals: { coverage: number; cosine: number };
  timings: Record<string, number>;
  generation: number;
}

const TOOLS = { maxTokens: "number or null" };

/** One found tool. */
export class Hit {
  /** The tool's id, `server/name`. */
  readonly id: string;
  /** What it is: `tool`, unless the search asked for other kinds. */
  readonly kind: Kind;
  /** The name within its server. */
  readonly name: string;
  /** The server; empty for a tool without one. */
  readonly server: string;
  /** The name under which a model calls it. */
  readonly modelName: string;
  /** What the tool does. */
  readonly description: string;
  /** Comparable within one answer only. A match by content reaches at most 1; exact names score higher. */
  readonly score: number;
  /** The positions of the texts of the query that found it. */
  readonly matchedQueries: number[];
  /** The part of the request that it serves, if the request has several needs. */
  readonly serves: string | undefined;
  /** The ids of its near-duplicates on other servers, with `foldDuplicates`. */
  readonly alsoOn: string[];
  /** Set for a tool that is here because another hit needs what it finds. */
  readonly companionOf: CompanionOf | undefined;
  /** How it got its score, with `explain`; as the HTTP API writes it. */
  readonly explain: JsonObject | undefined;
  readonly #tool: () => Tool;

  /** @internal */
  constructor(fields: HitFields, tool: () => Tool) {
    this.id = fields.id;
    this.kind = fields.kind ?? "tool";
    this.name = fields.name;
    this.server = fields.server;
    this.modelName = fields.model_name;
    this.description = fields.description;
    this.score = fields.score;
    this.matchedQueries = fields.matched_queries;
    this.serves = fields.serves;
    this.alsoOn = fields.also_on ?? [];
    this.companionOf = fields.companion_of;
    this.explain = fields.explain;
    this.#tool = tool;
  }

  /** The whole definition. */
  get tool(): Tool {
    return this.#tool();
  }
}

/** The answer to a search: the hits, best first, and how they were found. */
export class Results implements Iterable<Hit> {
  /** Best first. */
  readonly hits: readonly Hit[];
  /** The texts of the query. */
  readonly queries: readonly string[];
  /** The legs that answered. */
  readonly mode: "lexical" | "dense" | "hybrid";
  /** How much of the pipeline was run. */
  readonly variant: string;
  /** The ids of the embedders that scored the request. */
  readonly embedders: readonly string[];
  readonly degraded: Degraded | undefined;
  readonly noMatch: NoMatch | undefined;
  /** How well the hits serve the request. */
  readonly match: Match;
  /** The same in one sentence, for a model. */
  readonly advice: string;
  /** The words of the request that are in no hit and that no hit has a similar word for. */
  readonly unmatched: readonly string[];
  /** The number of tools that match better by every leg than any hit, and that the filter leaves out. */
  readonly betterHidden: number;
  /** The probability, 0 to 1, that one of the first five hits is right, where a model was trained for it. */
  readonly confidence: number | undefined;
  /** How close the best tool is. */
  readonly signals: { coverage: number; cosine: number };
  /** The time of each stage in milliseconds. */
  readonly timings: Record<string, number>;
  /** The generation of the catalog that answered. */
  readonly generation: number;
  readonly #native: Binding.Results;

  /** @internal */
  constructor(queries: string[], native: Binding.Results) {
    this.#native = native;
    const answer = JSON.parse(native.answer()) as AnswerFields;
    const hits = JSON.parse(native.hits()) as HitFields[];
    this.hits = hits.map((hit, position) => new Hit(hit, () => new Tool(native.tool(position))));
    this.queries = queries;
    this.mode = answer.mode;
    this.variant = answer.variant;
    this.embedders = answer.embedders;
    this.degraded = answer.degraded;
    this.noMatch = answer.no_match;
    this.match = answer.match;
    this.advice = answer.advice;
    this.unmatched = answer.unmatched;
    this.betterHidden = answer.better_hidden;
    this.confidence = answer.confidence;
    this.signals = answer.signals;
    this.timings = answer.timings;
    this.generation = answer.generation;
  }

  /** Number of hits. */
  get length(): number {
    return this.hits.length;
  }

  /** The ids of the hits, best first. */
  get ids(): string[] {
    return this.hits.map((hit) => hit.id);
  }

  [Symbol.iterator](): IterableIterator<Hit> {
    return this.hits.values();
  }

  /**
   * The found tools in a provider's format, for the `tools` of a request to a model. `maxTokens` limits
   * their tokens (o200k): whole definitions first, shortened ones below.
   */
  tools(format: "names" | "signature", options?: { maxTokens?: number }): string[];
  tools(format: "mcp", options?: { maxTokens?: number }): { tools: JsonObject[] };
  tools(
    format: "openai" | "openai_responses" | "anthropic" | "anthropic_reference",
    options?: { maxTokens?: number },
  ): JsonObject[];
  tools(format: ToolFormat, options: { maxTokens?: number } = {}): unknown {
    check("format", format, "string");
    checkOptions("tools", options, TOOLS);
    const { maxTokens } = options;
    return JSON.parse(callingNow(() => this.#native.tools(format, maxTokens))) as unknown;
  }

  /** The answer as the HTTP API writes it. */
  toJSON(): JsonObject {
    const answer = JSON.parse(this.#native.answer()) as JsonObject;
    const hits = JSON.parse(this.#native.hits()) as JsonObject[];
    return { ...answer, hits, queries: this.queries };
  }
}
