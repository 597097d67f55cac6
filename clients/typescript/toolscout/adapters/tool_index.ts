// The tools of a framework, found by what they do.

import { checkOptions } from "../checks.js";
import { Catalog, type JsonObject } from "../index.js";

export interface ToolSearchOptions {
  /** Where the tools are searched; in an own catalog, in a temporary folder, if not given. */
  catalog?: Catalog;
  /** Most tools found at a time; 5 if not given. */
  limit?: number;
  /** The embedders of the own catalog. */
  embedder?: string;
}

/** A tool as MCP describes it. */
export interface Definition {
  name: string;
  description: string;
  inputSchema: JsonObject;
}

/** Most hits of a search. */
const MOST = 50;

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
    checkOptions("toolSearch", options, { catalog: "any", limit: "any", embedder: "string" });
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
    if (!this.#given) {
      this.#own ??= this.#indexed();
      return (await (await this.#own).search(query, { limit: this.#limit })).ids;
    }
    const named = await this.#namedIn(this.#given);
    const { ids } = await this.#given.search(query, { limit: MOST, ids: [...named.keys()] });
    const found = new Set(ids.map((id) => named.get(id) ?? id));
    return [...found].slice(0, this.#limit);
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
