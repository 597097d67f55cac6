// The tools of a framework, found by what they do.

import { checkOptions } from "../checks.js";
import { Catalog, Toolbox, type JsonObject, type Policy } from "../index.js";

export interface ToolSearchOptions {
  /** Where the tools are searched; in an own catalog, in a temporary folder, if not given. */
  catalog?: Catalog;
  /** Most tools found at a time; 5 if not given. */
  limit?: number;
  /** The embedders of the own catalog. */
  embedder?: string;
  /** Most tokens of what is shown; 8,000 if not given. */
  budget?: number;
  /** Which tools go first where new ones do not fit; the least recently used if not given. */
  policy?: Policy;
}

/** A tool as MCP describes it. */
export interface Definition {
  name: string;
  description: string;
  inputSchema: JsonObject;
}

/** Most hits of a search. */
const MOST = 50;
const OPTIONS = { catalog: "any", limit: "any", embedder: "string", budget: "number", policy: "string" };

/**
 * Finds tools by name, among those that it was given.
 *
 * A given catalog is searched as it is, among those of its tools that have the names of the framework's,
 * alone or with their server.
 */
export class ToolIndex {
  readonly #names: Set<string>;
  readonly #limit: number;
  readonly #given: Catalog | undefined;
  readonly #embedder: string | undefined;
  readonly #definitions: () => Promise<Definition[]>;
  #own: Promise<Catalog> | undefined;
  #named: { generation: number; byId: Map<string, string> } | undefined;

  constructor(names: string[], definitions: () => Promise<Definition[]>, options: ToolSearchOptions) {
    checkOptions("toolSearch", options, OPTIONS);
    const { catalog, limit = 5, embedder } = options;
    if (!Number.isInteger(limit) || limit < 1 || limit > MOST) {
      throw new RangeError(`limit is ${String(limit)}, and must be a whole number from 1 to ${MOST}`);
    }
    if (catalog !== undefined && !(catalog instanceof Catalog)) {
      throw new TypeError("catalog must be a Catalog; open one with Catalog.open");
    }
    this.#names = new Set(names);
    this.#definitions = definitions;
    this.#given = catalog;
    this.#limit = limit;
    this.#embedder = embedder;
  }

  /** Names the tools that fit, best first. */
  async find(query: string): Promise<string[]> {
    if (query.trim() === "" || this.#names.size === 0) return [];
    if (!this.#given) return (await (await this.catalog()).search(query, { limit: this.#limit })).ids;
    const named = await this.#namedIn(this.#given);
    const { ids } = await this.#given.search(query, { limit: MOST, ids: [...named.keys()] });
    const found = new Set(ids.map((id) => named.get(id) ?? id));
    return [...found].slice(0, this.#limit);
  }

  /** The catalog that is searched. */
  async catalog(): Promise<Catalog> {
    return this.#given ?? (this.#own ??= this.#indexed());
  }

  /** The names of the framework's tools, by their ids in the catalog. */
  async namesById(): Promise<Map<string, string>> {
    if (this.#given) return this.#namedIn(this.#given);
    return new Map([...this.#names].map((name) => [name, name]));
  }

  /** The names of the framework's tools, by their ids in a given catalog. */
  async #namedIn(catalog: Catalog): Promise<Map<string, string>> {
    const { generation } = await catalog.stats();
    if (this.#named?.generation !== generation) {
      const byId = new Map<string, string>();
      for await (const { id, name, modelName } of catalog) {
        const ours = [id, name, modelName].find((name) => this.#names.has(name));
        if (ours !== undefined) byId.set(id, ours);
      }
      this.#named = { generation, byId };
    }
    const { byId } = this.#named;
    if (byId.size === 0) {
      const [first] = this.#names;
      throw new Error(
        `the catalog has none of the ${this.#names.size} tools, such as ${first}; add them to it, or pass no catalog`,
      );
    }
    return byId;
  }

  async #indexed(): Promise<Catalog> {
    const catalog = await Catalog.temporary({ embedder: this.#embedder });
    await catalog.add(await this.#definitions());
    return catalog;
  }
}

/** The tools of a framework that a model sees in one conversation, within a token budget. */
export class Shown {
  readonly #index: ToolIndex;
  readonly #options: Pick<ToolSearchOptions, "budget" | "policy">;
  #made: Promise<Toolbox> | undefined;

  constructor(index: ToolIndex, { budget, policy }: ToolSearchOptions) {
    this.#index = index;
    this.#options = { budget, policy };
  }

  #toolbox(): Promise<Toolbox> {
    this.#made ??= this.#index.catalog().then((catalog) => new Toolbox(catalog, this.#options));
    return this.#made;
  }

  /** Finds tools, shows them, and answers with a text for the model. */
  async search(query: string): Promise<string> {
    const found = await this.#index.find(query);
    return found.length > 0 ? this.show(found) : "No tool fits; try other words.";
  }

  /** Shows tools by name, and answers with what a model is told of it. */
  async show(names: readonly string[]): Promise<string> {
    const [toolbox, byId] = [await this.#toolbox(), await this.#index.namesById()];
    const idOf = new Map([...byId].map(([id, name]) => [name, id]));
    const ids = names.flatMap((name) => idOf.get(name) ?? []);
    const { evicted, refused } = await toolbox.inject(ids);
    const nameOf = (id: string) => byId.get(id) ?? id;
    const without = refused.map(([id]) => nameOf(id));
    const parts: [string, string[]][] = [
      ["Found", ids.map(nameOf).filter((name) => !without.includes(name))],
      ["No room for", without],
      ["Unloaded, and found again by a search", evicted.map(nameOf)],
    ];
    const told = parts.filter(([, named]) => named.length > 0);
    return told.map(([title, named]) => `${title}: ${named.join(", ")}`).join(". ");
  }

  /** The names of the visible tools, in their order. */
  async names(): Promise<string[]> {
    if (!this.#made) return [];
    const byId = await this.#index.namesById();
    return (await this.#made).ids.flatMap((id) => byId.get(id) ?? []);
  }

  /** Ends the turn before, and begins one: a question of the user. */
  async beginTurn(): Promise<void> {
    const toolbox = await this.#toolbox();
    toolbox.endTurn();
    toolbox.beginTurn();
  }

  /** Notes an answer of the model, which ends a round, with the tools that it calls. */
  async answered(called: readonly string[]): Promise<void> {
    (await this.#toolbox()).tools("names");
    for (const name of called) await this.called(name);
  }

  /** Notes a call of a tool. */
  async called(name: string): Promise<void> {
    const [toolbox, byId] = [await this.#toolbox(), await this.#index.namesById()];
    const id = [...byId].find(([id, known]) => known === name && toolbox.find(id))?.[0];
    if (id !== undefined) await toolbox.calling(id, () => undefined);
  }
}
