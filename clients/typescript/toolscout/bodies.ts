// Tools and queries as bodies of requests. Files are read where there are some: nothing here needs Node.

import { kind } from "./checks.js";
import { definitionOf, isText, itemsOf, type List } from "./definitions.js";
import { ToolscoutError } from "./errors.js";

/**
 * A tool, a list or a record of them, JSON, NDJSON or YAML text, or, on Node, the path of a file; tools in any
 * form that the engine takes.
 */
export type ClientTools = string | URL | Uint8Array | object | List<object>;

export async function toolBody(tools: ClientTools): Promise<{ body: unknown; contentType?: string }> {
  let text = tools instanceof Uint8Array ? new TextDecoder().decode(tools) : tools;
  if (text instanceof URL || (typeof text === "string" && !isText(text, ["{", "["]))) {
    text = await readFile(text);
  }
  if (typeof text === "string") {
    const isJson = /^\s*[{[]/.test(text);
    return { body: text, contentType: isJson ? "application/json" : "application/yaml" };
  }
  if (typeof text !== "object" || text === null) {
    throw new TypeError(
      `tools must be an object, a list of objects, JSON text, or the path of a file, not ${kind(text)}`,
    );
  }
  const body = [];
  for await (const item of itemsOf(text)) {
    body.push(await definitionOf(item, `tools, item ${body.length + 1},`));
  }
  return { body };
}

export async function queryLines(queries: string | URL | Uint8Array | Iterable<object>): Promise<string> {
  if (queries instanceof Uint8Array) return new TextDecoder().decode(queries);
  if (queries instanceof URL) return readFile(queries);
  if (typeof queries === "string") return isText(queries, ["{"]) ? queries : readFile(queries);
  if (typeof queries !== "object" || queries === null || !(Symbol.iterator in queries)) {
    throw new TypeError(
      `queries must be a list of objects, lines of JSON, or the path of a file, not ${kind(queries)}`,
    );
  }
  return Array.from(queries, (query) => JSON.stringify(query)).join("\n");
}

/** Reads a file, where there are files. */
async function readFile(location: string | URL): Promise<string> {
  const node = (globalThis as { process?: NodeJS.Process }).process;
  const files = node?.getBuiltinModule?.("node:fs/promises");
  if (!files) {
    throw new TypeError(`${String(location)} is a file, and there are none here; pass its text`);
  }
  const isRemote = location instanceof URL ? location.protocol !== "file:" : /^https?:/.test(location);
  if (isRemote) {
    throw new TypeError(`${String(location)} is not read by the client; fetch it, and pass its text`);
  }
  try {
    return await files.readFile(location, "utf8");
  } catch (cause) {
    const message = `${String(location)}: ${cause instanceof Error ? cause.message : String(cause)}`;
    throw new ToolscoutError("unreadable_tools", message, { cause });
  }
}
