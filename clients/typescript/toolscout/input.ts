// Tools and queries in any form that scripts have them in.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import type * as Binding from "./binding.js";
import { kind } from "./checks.js";
import { definitionOf, isText, itemsOf, type List } from "./definitions.js";
import type { JudgedQuery } from "./evaluation.js";

/**
 * A tool, a list of them (one that is awaited too), a record of tools by name, JSON, NDJSON or YAML text, the path of a file or a
 * folder, or a URL; in any format that the program accepts.
 */
export type Tools = string | URL | Uint8Array | object | List<object>;

/** Items of a list that are read at a time: between two of them the script goes on. */
const BATCH = 1000;

export async function readTools(input: Binding.Input, tools: Tools): Promise<void> {
  if (typeof tools === "string") {
    await (isText(tools, ["{", "["]) ? input.text(tools) : input.location(tools));
  } else if (tools instanceof URL) {
    await input.location(tools.protocol === "file:" ? fileURLToPath(tools) : tools.href);
  } else if (tools instanceof Uint8Array) {
    await input.text(new TextDecoder().decode(tools));
  } else if (typeof tools !== "object" || tools === null) {
    const hint = typeof tools === "function" ? ", which tells no schema" : "";
    throw new TypeError(
      `tools must be an object, a list of objects, JSON text, or the path of a file, not ${kind(tools)}${hint}`,
    );
  } else {
    await readItems(input, itemsOf(tools));
  }
  input.finish();
}

async function readItems(input: Binding.Input, items: List<unknown>): Promise<void> {
  let batch: unknown[] = [];
  let count = 0;
  const flush = async () => {
    const [json, length] = [JSON.stringify(batch), batch.length];
    batch = [];
    await input.items(json, length);
  };
  for await (const item of items) {
    count += 1;
    batch.push(await definitionOf(item, `tools, item ${count},`));
    if (batch.length === BATCH) await flush();
  }
  if (batch.length > 0 || count === 0) await flush();
}

/** Judged queries, lines of `queries.jsonl`, or the path of such a file. */
export type Queries = string | URL | Uint8Array | Iterable<JudgedQuery>;

export async function queryLines(queries: Queries): Promise<string> {
  if (queries instanceof Uint8Array) return new TextDecoder().decode(queries);
  if (queries instanceof URL) return readFile(queries, "utf8");
  if (typeof queries === "string") {
    return isText(queries, ["{"]) ? queries : readFile(queries, "utf8");
  }
  if (typeof queries !== "object" || queries === null || !isList(queries)) {
    throw new TypeError(
      `queries must be a list of objects, lines of JSON, or the path of a file, not ${kind(queries)}`,
    );
  }
  return Array.from(queries, (query) => JSON.stringify(query)).join("\n");
}

function isList<T extends object>(value: T): value is T & List<unknown> {
  return Symbol.iterator in value || Symbol.asyncIterator in value;
}
