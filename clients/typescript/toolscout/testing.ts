/**
 * Doubles for tests of code that uses a catalog or a client: scripted answers, no engine and no network.
 *
 * @example
 * const catalog = new ScriptedCatalog({ "report a bug": ["github/create_issue"] });
 * (await catalog.search("report a bug")).ids; // ["github/create_issue"]
 *
 * @module
 */
import { Client, type ClientOptions } from "./client.js";

/** The ids that a query finds, best first, or what it throws. `"*"` answers every other query. */
export type Answers = Readonly<Record<string, readonly string[] | Error>>;

/** A call of a double. */
export interface ScriptedCall {
  /** The method of a catalog, or `METHOD /path` of a server. */
  method: string;
  arguments: Record<string, unknown>;
}

export interface ScriptedHit {
  id: string;
  name: string;
  server: string;
  score: number;
}

function found(answers: Answers, queries: readonly string[], limit?: number | null): ScriptedHit[] {
  const ids = new Set<string>();
  for (const query of queries) {
    const answer = Object.hasOwn(answers, query) ? answers[query] : answers["*"];
    if (answer === undefined) {
      const known = Object.keys(answers).map((text) => JSON.stringify(text)).join(", ") || "nothing";
      throw new Error(`nobody scripted an answer to ${JSON.stringify(query)}; there is ${known}`);
    }
    if (answer instanceof Error) throw answer;
    for (const id of answer) ids.add(id);
  }
  return [...ids].slice(0, limit ?? undefined).map((id, place) => {
    const slash = id.lastIndexOf("/");
    return { id, name: id.slice(slash + 1), server: id.slice(0, Math.max(slash, 0)), score: 1 / (1 + place) };
  });
}

/** Stands for a `Catalog`: `search` answers by a script, and `calls` has what was called. */
export class ScriptedCatalog {
  readonly calls: ScriptedCall[] = [];
  readonly #answers: Answers;

  constructor(answers: Answers = {}) {
    this.#answers = answers;
  }

  /** Answers as scripted; fails for a query without an answer. */
  search(query: string | readonly string[], options: { limit?: number } & object = {}) {
    this.calls.push({ method: "search", arguments: { query, ...options } });
    return new Promise<{ queries: string[]; hits: ScriptedHit[]; ids: string[] }>((resolve) => {
      const queries = typeof query === "string" ? [query] : [...query];
      const hits = found(this.#answers, queries, options.limit);
      resolve({ queries, hits, ids: hits.map(({ id }) => id) });
    });
  }

  /** Notes what was used. */
  feedback(results: { queries: readonly string[] }, tool: string) {
    this.calls.push({ method: "feedback", arguments: { queries: results.queries, tool } });
    return Promise.resolve({ recorded: true, remembered: true });
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * Stands for a server: real clients, and no network. Searches answer by the script, and `answersTo` adds the
 * JSON of any other request.
 */
export class ScriptedServer {
  readonly calls: ScriptedCall[] = [];
  readonly #answers: Answers;
  readonly #others = new Map<string, { answer: unknown; status: number }>();

  constructor(answers: Answers = {}) {
    this.#answers = answers;
  }

  /** Answers a request, such as `GET`, `/v1/stats`, with this JSON. */
  answersTo(method: string, path: string, answer: unknown, status = 200): this {
    this.#others.set(`${method} ${path}`, { answer, status });
    return this;
  }

  /** A client of it. */
  client(options: Omit<ClientOptions, "fetch"> = {}): Client {
    const fetch = (input: URL | RequestInfo, init?: RequestInit) =>
      Promise.resolve(input).then((to) => this.#answer(to as URL, init));
    return new Client("http://scripted.test", { ...options, fetch });
  }

  #answer(url: URL, init: RequestInit = {}): Response {
    const method = `${init.method ?? "GET"} ${url.pathname}`;
    const body = (typeof init.body === "string" ? JSON.parse(init.body) : {}) as Record<string, unknown>;
    this.calls.push({ method, arguments: body });
    const other = this.#others.get(method);
    if (other) return Response.json(other.answer, { status: other.status });
    if (method.startsWith("POST ") && method.endsWith("/search")) return this.#searched(body);
    if (method.startsWith("POST ") && method.endsWith("/feedback")) {
      return Response.json({ recorded: true, remembered: "query" in body }, { status: 201 });
    }
    throw new Error(`nobody scripted an answer to ${method}; answersTo(…) adds one`);
  }

  #searched(body: Record<string, unknown>): Response {
    const queries = (body.queries ?? [body.query]) as string[];
    const hits = found(this.#answers, queries, body.k as number | undefined);
    return Response.json({
      hits: hits.map((hit) => ({ ...hit, description: "", matched_queries: [0] })),
      mode: "hybrid",
      variant: "scripted",
      embedders: [],
      generation: 1,
      request_id: "scripted",
      feedback_token: `scripted-${this.calls.length}`,
      took_ms: {},
    });
  }
}
