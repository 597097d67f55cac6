/**
 * A client for the HTTP API. Needs nothing but `fetch`, so it runs in Node, in browsers, and elsewhere.
 *
 * @example
 * const client = new Client("http://127.0.0.1:7700");
 * const answer = await client.search("report a bug", { k: 5 });
 *
 * @module
 */
import type { components } from "./api_types.js";
import type { ClientTools } from "./bodies.js";
import { ApiError, ConnectionFailedError, ToolscoutError, warnDeprecated } from "./errors.js";
import { EventReader, Resumption } from "./events.js";
import type { Kind } from "./results.js";

export { ApiError, ConnectionFailedError, ToolscoutError };
export type { ClientTools };

/** The JSON of the HTTP API, by name. */
export type Schemas = components["schemas"];
export type SearchAnswer = Schemas["SearchAnswer"];
/** The options of a search; those that the engine has too have its names. */
export interface SearchParameters
  extends Omit<Schemas["SearchRequest"], "query" | "queries" | "k" | "filter"> {
  limit?: number;
  kinds?: Kind | readonly Kind[];
  servers?: string | readonly string[];
  tags?: string | readonly string[];
  ids?: string | readonly string[];
  readOnly?: boolean;
  destructive?: boolean;
  /** @deprecated The former name of `limit`. */
  k?: number;
  /** @deprecated The former place of `servers`, `tags`, `ids`, `readOnly` and `destructive`. */
  filter?: Schemas["SearchFilter"];
}
export type FeedbackOptions = Partial<Pick<Schemas["FeedbackRequest"], "outcome" | "query">>;
export type CallOptions = Partial<Omit<Schemas["CallRequest"], "tool" | "arguments">>;
export type EvaluationOptions = Partial<Omit<Schemas["EvaluationRequest"], "queries">>;
/** What a client says of its work. `error` has values, such as the status. */
export type Log = (level: "debug" | "info" | "warn", message: string) => void;
export type AgentEvent = Schemas["AgentEvent"];

/** Where `toolscout serve` listens unless it is told otherwise. */
export const DEFAULT_URL = "http://127.0.0.1:7700";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 30_000;
/** Statuses after which the same request may succeed. */
const REPEATED = [429, 502, 503, 504];
const SUCCEEDED = 200;
/** Searches whose text is known for feedback. */
const MOST_ASKED = 4096;

export interface ClientOptions {
  /** The key; in Node that of `TOOLSCOUT_KEY` if not given. */
  key?: string;
  catalog?: string;
  /** Milliseconds for one answer. Streams may take longer. */
  timeoutMs?: number;
  /** Most repetitions of a request. */
  retries?: number;
  /** In place of the global one. */
  fetch?: typeof fetch;
  /** Is told of repetitions, and of what is not learnt. */
  log?: Log;
}

export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Begins with `/v1/`. */
  path: string;
  params?: Record<string, string | number | boolean | null | undefined>;
  /** What becomes JSON; text goes as it is. */
  body?: unknown;
  contentType?: string;
  /** Whether doing it twice is as good as doing it once; true if not given. */
  repeats?: boolean;
  signal?: AbortSignal;
}

/** Which tools texts are written for. */
export interface EnrichOptions {
  servers?: string[];
  limit?: number;
  texts?: number;
  languages?: string[];
}

/** Which tools are asked about. */
export interface QuestionOptions {
  server?: string;
  limit?: number;
  texts?: number;
  languages?: readonly string[];
}

/** A question for the agent. */
export interface AskOptions {
  conversation?: string;
  /** One of several agents of the server; that of the conversation if not given. */
  agent?: string;
  identity?: string;
  /** Whether the run goes on while the connection is lost; true if not given. */
  resume?: boolean;
  signal?: AbortSignal;
}

/**
 * A connection to a server.
 *
 * A request that meets a busy server or none is repeated, up to `retries` times, after what the server asks
 * to wait and else a growing time. One that changes something is repeated only where that does no harm.
 * What remains fails with `ApiError` or `ConnectionFailedError`.
 */
export class Client {
  readonly url: string;
  readonly catalog: string;
  readonly #key: string | undefined;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;
  readonly #log: Log;

  /** Connects to `url`, or in Node to that of `TOOLSCOUT_URL`. */
  constructor(url?: string, options: ClientOptions = {}) {
    this.url = (url ?? variable("TOOLSCOUT_URL") ?? DEFAULT_URL).replace(/\/+$/, "");
    if (!/^https?:\/\/./.test(this.url)) {
      throw new TypeError(`the address ${JSON.stringify(this.url)} does not begin with http:// or https://`);
    }
    this.catalog = options.catalog ?? "default";
    this.#key = options.key ?? variable("TOOLSCOUT_KEY");
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#retries = options.retries ?? 3;
    this.#log = options.log ?? (() => undefined);
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Sends any request, and answers with the JSON of its answer; `undefined` for one without a body. */
  async request<T>(call: Call): Promise<T> {
    let wait = FIRST_WAIT_MS;
    for (let attempt = 0; ; attempt++) {
      let failure: ToolscoutError;
      try {
        return await this.#once<T>(call);
      } catch (error) {
        if (!(error instanceof ToolscoutError) || !mayRepeat(call, error)) throw error;
        failure = error;
      }
      const wanted = failure instanceof ApiError ? (failure.retryAfter ?? 0) * 1000 : 0;
      if (attempt >= this.#retries || wanted > LONGEST_WAIT_MS) throw failure;
      this.#log("info", `${call.method} ${call.path} is sent again: ${failure.message}`);
      // Clients that met the same busy server do not come back at the same time.
      await sleep(Math.max(wanted, wait * (0.5 + Math.random() / 2)), call.signal);
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }

  /** Finds tools. */
  async search(
    query: string | string[],
    parameters: SearchParameters = {},
    signal?: AbortSignal,
  ): Promise<SearchAnswer> {
    const body = searchBody(query, parameters);
    const call: Call = { method: "POST", path: this.#of("search"), body, signal };
    const answer = await this.request<SearchAnswer>(call);
    asked.note(query, answer);
    return answer;
  }

  /**
   * Adds tools, or replaces those with the same id; waits for the task of a large load. Takes what
   * `Catalog.add` takes; files are read here, on Node.
   */
  async add(
    tools: ClientTools,
    options: { server?: string; skipInvalid?: boolean; signal?: AbortSignal } = {},
  ): Promise<Schemas["UpsertAnswer"] | Schemas["Task"]> {
    const { server, skipInvalid, signal } = options;
    const params = { server, skip_invalid: skipInvalid ? true : undefined };
    const call: Call = { method: "POST", path: this.#of("tools"), params, signal };
    return this.#finished(await this.request({ ...call, ...(await (await bodies()).toolBody(tools)) }), signal);
  }

  /** Replaces all tools of a server; waits for the task of a large load. */
  async sync(
    server: string,
    tools: ClientTools,
    signal?: AbortSignal,
  ): Promise<Schemas["SyncAnswer"] | Schemas["Task"]> {
    const call: Call = { method: "PUT", path: this.#of("servers", server, "tools"), signal };
    return this.#finished(await this.request({ ...call, ...(await (await bodies()).toolBody(tools)) }), signal);
  }

  /** The tools, page by page. */
  async *tools(
    filter: { server?: string; tag?: string; name?: string } = {},
  ): AsyncGenerator<Schemas["ToolBody"], void, undefined> {
    const pages = this.#pages<Schemas["ToolPage"]>(this.#of("tools"), filter);
    for await (const page of pages) yield* page.tools;
  }

  /** One tool; `unknown_tool` where there is none. */
  get(id: string): Promise<Schemas["ToolBody"]> {
    return this.request({ method: "GET", path: this.#of("tools", id) });
  }

  /** Removes tools by id: one, or several. `removed` has those that were there. */
  async remove(ids: string | readonly string[]): Promise<{ removed: string[] }> {
    const removed = [];
    for (const id of typeof ids === "string" ? [ids] : ids) {
      try {
        await this.request({ method: "DELETE", path: this.#of("tools", id) });
      } catch (error) {
        if (error instanceof ApiError && error.code === "unknown_tool") continue;
        throw error;
      }
      removed.push(id);
    }
    return { removed };
  }

  /** The catalogs of the server that the key may see, page by page. */
  async *catalogs(): AsyncGenerator<Schemas["Catalog"], void, undefined> {
    const pages = this.#pages<Schemas["CatalogList"]>(route("catalogs"));
    for await (const page of pages) yield* page.catalogs;
  }

  async *#pages<Page extends { next_cursor?: string | null }>(
    path: string,
    filter: object = {},
  ): AsyncGenerator<Page, void, undefined> {
    let cursor: string | null | undefined;
    do {
      const params = { ...filter, cursor };
      const page: Page = await this.request<Page>({ method: "GET", path, params });
      yield page;
      cursor = page.next_cursor;
    } while (cursor);
  }

  /** Creates a catalog, or reads the one of this name. A client with `{ catalog: name }` uses it. */
  createCatalog(name: string): Promise<Schemas["Catalog"]> {
    return this.request({ method: "PUT", path: route("catalogs", name) });
  }

  /** Deletes a catalog with all its tools; `unknown_catalog` where there is none. */
  async deleteCatalog(name: string): Promise<void> {
    await this.request({ method: "DELETE", path: route("catalogs", name) });
  }

  /**
   * Reports that a tool of the answer was used, from which the catalog learns. Sends the text of the search;
   * `{ query: null }` does not. `remembered` says whether the usage memory has taken it (`setMemory`).
   */
  feedback(
    answer: SearchAnswer,
    tool: string,
    options: FeedbackOptions = {},
  ): Promise<Schemas["FeedbackAnswer"]> {
    const query = options.query === undefined ? asked.queryOf(answer, tool) : options.query;
    if (query === undefined) {
      this.#log(
        "warn",
        `the text of the search is not known here, so the catalog does not learn from ${tool}; give it as \`query\``,
      );
    }
    const body = { feedback_token: answer.feedback_token, tool, ...options, query: query ?? undefined };
    return this.request({ method: "POST", path: this.#of("feedback"), body, repeats: false });
  }

  /** The entries of the usage memory, page by page. */
  async *memory(): AsyncGenerator<Schemas["MemoryEntry"], void, undefined> {
    const pages = this.#pages<Schemas["MemoryPage"]>(this.#of("memory"));
    for await (const page of pages) yield* page.entries;
  }

  /** Switches the usage memory on or off; its entries stay. */
  setMemory(enabled: boolean): Promise<Schemas["MemorySwitch"]> {
    return this.request({ method: "PUT", path: this.#of("memory"), body: { enabled } });
  }

  /** Deletes entries of the usage memory: those of a tool, those of a request, or all. */
  forget(which: { tool?: string; query?: string } = {}): Promise<Schemas["Forgotten"]> {
    return this.request({ method: "DELETE", path: this.#of("memory"), params: which });
  }

  /** The owner's words: aliases, synonyms, pins, boosts and descriptions. */
  words(): Promise<Schemas["WordsAnswer"]> {
    return this.request({ method: "GET", path: this.#of("words") });
  }

  /** Replaces the owner's words. */
  setWords(words: Schemas["Words"]): Promise<Schemas["WordsAnswer"]> {
    return this.request({ method: "PUT", path: this.#of("words"), body: words });
  }

  /** Changes the owner's words by a JSON merge patch: `null` removes an entry. */
  patchWords(patch: object): Promise<Schemas["WordsAnswer"]> {
    return this.request({ method: "PATCH", path: this.#of("words"), body: patch });
  }

  /** The settings: the defaults of searches. */
  settings(): Promise<Schemas["CatalogSettings"]> {
    return this.request({ method: "GET", path: this.#of("settings") });
  }

  /** Replaces the settings. */
  setSettings(settings: Schemas["CatalogSettings"]): Promise<Schemas["CatalogSettings"]> {
    return this.request({ method: "PUT", path: this.#of("settings"), body: settings });
  }

  /** The sizes of the catalog. */
  stats(): Promise<Schemas["CatalogStats"]> {
    return this.request({ method: "GET", path: this.#of("stats") });
  }

  /** The servers of the catalog, with their connections. */
  async servers(): Promise<Schemas["Server"][]> {
    const list = await this.request<Schemas["ServerList"]>({ method: "GET", path: this.#of("servers") });
    return list.servers;
  }

  /** What changed in tools since a person approved them, and blocked tools, page by page. */
  async *changes(
    filter: { server?: string; tool?: string } = {},
  ): AsyncGenerator<Schemas["ToolChange"], void, undefined> {
    const pages = this.#pages<Schemas["ChangePage"]>(this.#of("changes"), filter);
    for await (const page of pages) yield* page.changes;
  }

  /** Accepts changes, and blocks tools; `accept_all` names servers. */
  review(request: Schemas["ReviewRequest"]): Promise<Schemas["ReviewAnswer"]> {
    return this.request({ method: "POST", path: this.#of("changes"), body: request });
  }

  /** The keys of the server, newest first, page by page. */
  async *keys(): AsyncGenerator<Schemas["ApiKey"], void, undefined> {
    for await (const page of this.#pages<Schemas["KeyPage"]>(route("keys"))) yield* page.keys;
  }

  /** One key; `unknown_key` where there is none. */
  key(id: string): Promise<Schemas["ApiKey"]> {
    return this.request({ method: "GET", path: route("keys", id) });
  }

  /** Creates a key. The answer is the only one that has it whole. */
  createKey(request: Schemas["KeyRequest"]): Promise<Schemas["CreatedKeyBody"]> {
    return this.request({ method: "POST", path: route("keys"), body: request, repeats: false });
  }

  /** Revokes a key. */
  revokeKey(id: string): Promise<Schemas["ApiKey"]> {
    return this.request({ method: "DELETE", path: route("keys", id) });
  }

  /** What the server has done since its start: requests, searches, saved tokens. */
  usage(): Promise<Schemas["ServerStats"]> {
    return this.request({ method: "GET", path: route("stats") });
  }

  /** What people say when they need tools, page by page. */
  async *texts(filter: { server?: string } = {}): AsyncGenerator<Schemas["ToolTexts"], void, undefined> {
    const pages = this.#pages<Schemas["TextsPage"]>(this.#of("texts"), filter);
    for await (const page of pages) yield* page.tools;
  }

  /** What people say when they need a tool; `texts` is empty where nobody wrote any. */
  textsOf(id: string): Promise<Schemas["ToolTexts"]> {
    return this.request({ method: "GET", path: this.#of("texts", id) });
  }

  /** Replaces what people say when they need a tool; `model` says who wrote it. */
  setTexts(id: string, texts: readonly string[], model?: string): Promise<Schemas["ToolTexts"]> {
    return this.request({ method: "PUT", path: this.#of("texts", id), body: { texts, model } });
  }

  /** Deletes what people say when they need a tool; `no_texts` where there is none. */
  async deleteTexts(id: string): Promise<void> {
    await this.request({ method: "DELETE", path: this.#of("texts", id) });
  }

  /** Asks about tools without texts, in a text that any assistant answers (`takeTexts`). */
  questions(options: QuestionOptions = {}): Promise<string> {
    const params = { ...options, languages: options.languages?.join(",") };
    return this.request({ method: "GET", path: this.#of("questions"), params });
  }

  /** Stores the answers to `questions`, or lines of texts of another catalog. */
  takeTexts(answers: string): Promise<Schemas["TakenTexts"]> {
    const path = this.#of("texts");
    return this.request({ method: "POST", path, body: answers, contentType: "text/plain" });
  }

  /** How many tools have texts, and what may be spent on others. */
  enrichState(): Promise<Schemas["EnrichState"]> {
    return this.request({ method: "GET", path: this.#of("enrich") });
  }

  /** What `enrich` would take; nothing is sent to a model. */
  estimateEnrich(options: EnrichOptions = {}): Promise<Schemas["EnrichEstimate"]> {
    const body = { ...options, dry_run: true };
    return this.request({ method: "POST", path: this.#of("enrich"), body });
  }

  /** Lets the server's model write texts for tools without any, and waits for the task. */
  async enrich(options: EnrichOptions = {}, signal?: AbortSignal): Promise<Schemas["Task"]> {
    const call: Call = { method: "POST", path: this.#of("enrich"), body: options, signal };
    return this.#finished(await this.request<Schemas["Task"]>({ ...call, repeats: false }), signal);
  }

  /** What the texts are worth: one of each tool is kept aside and searched for. */
  measureTexts(filter: { server?: string } = {}): Promise<Schemas["EnrichMeasure"]> {
    return this.request({ method: "GET", path: this.#of("enrich", "measure"), params: filter });
  }

  /** The evaluations of the catalog, newest first. */
  async evaluations(): Promise<Schemas["Evaluation"][]> {
    const path = this.#of("evaluations");
    const list = await this.request<Schemas["EvaluationList"]>({ method: "GET", path });
    return list.evaluations;
  }

  evaluation(id: string): Promise<Schemas["EvaluationBody"]> {
    return this.request({ method: "GET", path: this.#of("evaluations", id) });
  }

  /** The queries of an evaluation with their answers, page by page. */
  async *evaluationQueries(id: string): AsyncGenerator<Schemas["QueryRow"], void, undefined> {
    const pages = this.#pages<Schemas["QueryPage"]>(this.#of("evaluations", id, "queries"));
    for await (const page of pages) yield* page.queries;
  }

  async deleteEvaluation(id: string): Promise<void> {
    await this.request({ method: "DELETE", path: this.#of("evaluations", id) });
  }

  /** Calls a tool through the gate. It is never repeated. */
  call(tool: string, args: object = {}, options: CallOptions = {}): Promise<Schemas["CallAnswer"]> {
    const body = { tool, arguments: args, ...options };
    return this.request({ method: "POST", path: this.#of("calls"), body, repeats: false });
  }

  /**
   * Measures how well the catalog answers judged queries, and waits for the figures. `queries` are a list,
   * lines of `queries.jsonl`, or, on Node, the path of such a file.
   */
  async evaluate(
    queries: string | URL | Uint8Array | Iterable<object>,
    options: EvaluationOptions = {},
    signal?: AbortSignal,
  ): Promise<Schemas["EvaluationBody"]> {
    const lines = await (await bodies()).queryLines(queries);
    const path = this.#of("evaluations");
    const call: Call = { method: "POST", path, body: { queries: lines, ...options }, signal };
    const started = await this.request<Schemas["Task"]>({ ...call, repeats: false });
    const task = await this.#finished(started, signal);
    const id = task.evaluation ?? "";
    return this.request({ method: "GET", path: this.#of("evaluations", id), signal });
  }

  /**
   * Asks the agent, and iterates over the events of its answer; the last one is `done`.
   *
   * With `resume`, the run goes on while the connection is lost, and the events go on with what is left of
   * it. Without, leaving the iteration stops the run.
   */
  async *ask(query: string, options: AskOptions = {}): AsyncGenerator<AgentEvent, void, undefined> {
    const { conversation, agent, identity, resume = true, signal } = options;
    const path = route("agent", "chat");
    const body = { query, conversation, agent, identity, detached: resume };
    const leaving = new AbortController();
    const ended = signal ? AbortSignal.any([signal, leaving.signal]) : leaving.signal;
    const answer = await this.#send({ method: "POST", path, body, signal }, ended);
    if (!answer.ok) throw await errorOf(answer);
    const rest = new Resumption(answer.headers.get("x-conversation-id") ?? undefined);
    try {
      for await (const event of eventsOf(answer)) {
        rest.seen(event);
        yield event;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof ToolscoutError) throw error;
      if (!rest.isDone && !(resume && rest.conversation)) {
        throw lost("the connection was lost within the answer", error);
      }
    } finally {
      leaving.abort();
    }
    if (!rest.isDone) yield* this.#remaining(rest, signal);
  }

  async *#remaining(
    rest: Resumption,
    signal?: AbortSignal,
  ): AsyncGenerator<AgentEvent, void, undefined> {
    const path = route("agent", "conversations", rest.conversation ?? "");
    const read = () =>
      this.request<Schemas["Conversation"]>({ method: "GET", path, signal });
    let conversation = await read();
    for (let wait = 50; conversation.running; wait = Math.min(1.5 * wait, 1000)) {
      await sleep(wait, signal);
      conversation = await read();
    }
    const turn = conversation.turns.at(-1);
    if (!turn) throw new ConnectionFailedError("connection_failed", "the run was lost by the server");
    const events = `${path}/turns/${turn.number}/events`;
    const kept = await this.request<Schemas["EventsOfTurn"]>({ method: "GET", path: events, signal });
    yield* rest.remaining(conversation.id, turn, kept.events);
  }

  async #finished<T>(answer: T, signal?: AbortSignal): Promise<T> {
    let last: unknown = answer;
    for (let wait = 50; isTask(last) && last.status === "running"; wait = Math.min(1.5 * wait, 1000)) {
      await sleep(wait, signal);
      last = await this.request({ method: "GET", path: route("tasks", last.id), signal });
    }
    if (isTask(last) && (last.status === "failed" || last.status === "cancelled")) {
      const { code, message } = last.error ?? {};
      const text = message ?? `the task ${last.id} was ${last.status}`;
      throw new ToolscoutError(code ?? `task_${last.status}`, text);
    }
    return last as T;
  }

  async #once<T>(call: Call): Promise<T> {
    const timeout = AbortSignal.timeout(this.#timeoutMs);
    const signal = call.signal ? AbortSignal.any([call.signal, timeout]) : timeout;
    const answer = await this.#send(call, signal);
    if (!answer.ok) throw await errorOf(answer);
    let text;
    try {
      text = await answer.text();
    } catch (error) {
      call.signal?.throwIfAborted();
      throw lost(`${call.method} ${call.path}`, error);
    }
    const isProse = answer.headers.get("content-type")?.startsWith("text/markdown");
    return isProse ? (text as T) : parsed<T>(answer.url, text);
  }

  async #send(call: Call, signal: AbortSignal): Promise<Response> {
    const { method, path, params = {}, body } = call;
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries(params)) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = call.contentType ?? "application/json";
    const content = typeof body === "string" ? body : JSON.stringify(body);
    try {
      return await this.#fetch(url, { method, headers, body: content, signal });
    } catch (error) {
      call.signal?.throwIfAborted();
      throw lost(`${method} ${path}`, error);
    }
  }

  #of(...parts: string[]): string {
    return route("catalogs", this.catalog, ...parts);
  }
}

function route(...parts: string[]): string {
  return `/v1/${parts.map(encodeURIComponent).join("/")}`;
}

/** The former names of options. */
type FormerParameters = Pick<Schemas["SearchRequest"], "k" | "filter">;

function searchBody(query: string | string[], parameters: SearchParameters): object {
  const { k, filter } = parameters as FormerParameters;
  const known = { ...parameters, k: undefined, filter: undefined };
  const { limit, kinds, servers, tags, ids, readOnly, destructive, ...others } = known;
  if (k !== undefined) warnDeprecated("`k` is now called `limit`");
  if (filter !== undefined) {
    warnDeprecated("`filter` is now `servers`, `tags`, `ids`, `readOnly` and `destructive`");
  }
  const list = (value?: string | readonly string[]) => (typeof value === "string" ? [value] : value);
  const given = { kinds: list(kinds), servers: list(servers), tags: list(tags), ids: list(ids), read_only: readOnly, destructive };
  const restricting = Object.entries(given).filter(([, value]) => value !== undefined);
  const whole = { ...filter, ...Object.fromEntries(restricting) };
  const text = typeof query === "string" ? { query } : { queries: query };
  const filtered = Object.keys(whole).length > 0 ? { filter: whole } : {};
  return { ...text, ...others, k: limit ?? k, ...filtered };
}

/** The texts of searches by the tokens of their answers, which have no text themselves. */
const asked = {
  queries: new Map<string, string[]>(),

  note(query: string | string[], answer: SearchAnswer): void {
    if (!answer.feedback_token) return;
    this.queries.set(answer.feedback_token, typeof query === "string" ? [query] : query);
    if (this.queries.size <= MOST_ASKED) return;
    const [oldest] = this.queries.keys();
    if (oldest !== undefined) this.queries.delete(oldest);
  },

  /** The text that found a tool. */
  queryOf(answer: SearchAnswer, tool: string): string | undefined {
    const queries = this.queries.get(answer.feedback_token);
    const hit = answer.hits.find(({ id }) => id === tool);
    return queries?.[hit?.matched_queries[0] ?? 0] ?? queries?.[0];
  },
};

/** What reads tools and files: loaded on use, since a page that only searches does not need it. */
function bodies(): Promise<typeof import("./bodies.js")> {
  return import("./bodies.js");
}

function mayRepeat(call: Call, error: ToolscoutError): boolean {
  const repeats = call.repeats ?? true;
  if (error instanceof ApiError) {
    // A server that is too busy for a request has not begun with it.
    return REPEATED.includes(error.status) && (repeats || error.status === 429);
  }
  return error.code === "connection_failed" && (repeats || wasNotSent(error.cause));
}

/** Whether there was no connection at all. Browsers do not say, so there nothing is repeated that does harm. */
function wasNotSent(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const codes: unknown[] = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];
  return codes.includes(code);
}

function lost(what: string, error: unknown): ConnectionFailedError {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new ConnectionFailedError("connection_failed", `${what}: ${reason}`, { cause: error });
}

function parsed<T>(url: string, text: string): T {
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    const start = JSON.stringify(text.slice(0, 100));
    const message = `${url} answered ${start}, which is no JSON; is it a toolscout server?`;
    throw new ConnectionFailedError("unreadable_answer", message);
  }
}

async function errorOf(answer: Response): Promise<ApiError> {
  const text = await answer.text().catch(() => "");
  const seconds = Number.parseFloat(answer.headers.get("retry-after") ?? "");
  const retryAfter = seconds >= 0 ? seconds : undefined;
  const status = answer.status;
  let fields: { code?: unknown; message?: unknown; type?: string; request_id?: string; items?: object[] } = {};
  try {
    fields = (JSON.parse(text) as { error?: typeof fields }).error ?? {};
  } catch {
    // Not of a server of ours.
  }
  const { code, message, type, request_id: requestId, items } = fields;
  if (typeof code !== "string" || typeof message !== "string") {
    const start = `${answer.url} answered ${status}: ${text.slice(0, 200)}`;
    return new ApiError("unreadable_answer", start, { status, retryAfter });
  }
  return new ApiError(code, message, { status, kind: type, requestId, retryAfter, items });
}

async function* eventsOf(answer: Response): AsyncGenerator<AgentEvent, void, undefined> {
  if (answer.status !== SUCCEEDED || !answer.body) return;
  const reader = new EventReader<AgentEvent>();
  const chunks = answer.body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await chunks.read();
    if (done) return;
    yield* reader.feed(decoder.decode(value, { stream: true }));
  }
}

type TaskState = { id: string; status: string; error?: { code?: string; message?: string } | null };

function isTask(answer: unknown): answer is TaskState {
  return typeof answer === "object" && answer !== null && "status" in answer && "id" in answer;
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A variable of the environment, where there is one. */
function variable(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name];
}
