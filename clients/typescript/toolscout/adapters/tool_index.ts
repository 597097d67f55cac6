// The tools of a framework, found by what they do.

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
 * A given catalog is searched as it is: its tools have the names of the framework's, alone or with their
 * server.
 */
export class ToolIndex {
  readonly #names: Set<string>;
  readonly #limit: number;
  readonly #given: Catalog | undefined;
  readonly #embedder: string | undefined;
  readonly #definitions: () => Promise<Definition[]>;
  #own: Promise<Catalog> | undefined;

  constructor(
    names: string[],
    definitions: () => Promise<Definition[]>,
    { catalog, limit = 5, embedder }: ToolSearchOptions,
  ) {
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
    const found = new Set<string>();
    for (const hit of await this.#given.search(query, { limit: MOST })) {
      const names = [hit.id, hit.name, hit.modelName];
      const name = names.find((name) => this.#names.has(name));
      if (name !== undefined) found.add(name);
    }
    return [...found].slice(0, this.#limit);
  }

  async #indexed(): Promise<Catalog> {
    const catalog = await Catalog.temporary({ embedder: this.#embedder });
    await catalog.add(await this.#definitions());
    return catalog;
  }
}
