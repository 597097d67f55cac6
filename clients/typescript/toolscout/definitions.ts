// Tools from what people have: the tool objects of frameworks, and schemas of zod and others. No framework is
// imported: an object is known by its fields. Nothing here is of Node.

import { kind } from "./checks.js";
import { isZod3, jsonSchema as ofZod3 } from "./zod3.js";

type JsonObject = Record<string, unknown>;
type Fields = Record<string, unknown>;

const ACCEPTED =
  "an object with name, description and inputSchema, a tool of the Vercel AI SDK (by its name), LangChain, " +
  "OpenAI Agents, LlamaIndex, Mastra or MCP";
/** Fields that may have a schema, in the order in which they count. */
const SCHEMAS = ["inputSchema", "parameters", "schema", "input_schema"];

export type List<T> = Iterable<T> | AsyncIterable<T>;

/** The tools one by one: those of a list or of a record by name, or the one that this is. */
export function itemsOf(tools: object): List<unknown> {
  if (tools instanceof Map) return named([...tools.entries()] as [unknown, unknown][]);
  if (Symbol.iterator in tools || Symbol.asyncIterator in tools) return tools as List<unknown>;
  const entries = Object.entries(tools as Fields);
  const isRecord = entries.length > 0 && entries.every(([, value]) => isNameless(value));
  return isRecord && !("name" in tools && typeof tools.name === "string") ? named(entries) : [tools];
}

async function* named(entries: [unknown, unknown][]): AsyncGenerator<unknown, void, undefined> {
  for (const [name, value] of entries) yield await definitionOf(value, `the tool ${String(name)}`, String(name));
}

/** Whether this is a tool whose name is the key that it has in a record. */
function isNameless(value: unknown): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const fields = value as Fields;
  const hasSchema = SCHEMAS.some((field) => field in fields && isSchema(fields[field]));
  const isTool = typeof fields.execute === "function" || typeof fields.description === "string";
  return (hasSchema && isTool) || typeof fields.execute === "function" || typeof fields.invoke === "function";
}

function isSchema(value: unknown): boolean {
  return typeof value === "function" || (typeof value === "object" && value !== null);
}

/**
 * Writes a tool in the form of MCP; a definition that is JSON already is returned as it is.
 *
 * @throws TypeError that names what is no tool.
 */
export async function definitionOf(value: unknown, place: string, name?: string): Promise<unknown> {
  if (typeof value === "function") {
    throw new TypeError(
      `${place} is a function, which tells no schema; pass ${ACCEPTED}`,
    );
  }
  if (value === undefined || typeof value === "symbol" || typeof value === "bigint") {
    throw new TypeError(`${place} is ${kind(value)}, and a tool is ${ACCEPTED}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const fields = value as Fields;
  const own = ownName(fields, name);
  const field = SCHEMAS.find((field) => field in fields && isSchema(fields[field]));
  const isFramework = name !== undefined || isLive(fields, field);
  if (!isFramework) {
    refuseClass(value, own, place);
    return value;
  }
  const metadata = (fields.metadata ?? {}) as Fields;
  const schema = field === undefined ? metadata.parameters : fields[field];
  const description = fields.description ?? metadata.description;
  return {
    ...annotations(fields),
    name: own ?? metadata.name,
    description: typeof description === "string" ? description : "",
    inputSchema: await schemaOf(schema, `${place} (${String(own ?? metadata.name)})`),
  };
}

function ownName(fields: Fields, name?: string): string | undefined {
  return [name, fields.name, fields.id].find((text) => typeof text === "string");
}

/** Whether this has what JSON does not: a function that calls it, or a schema that is an object of a library. */
function isLive(fields: Fields, field: string | undefined): boolean {
  const isCalled = ["invoke", "execute", "call", "_call"].some((method) => typeof fields[method] === "function");
  return isCalled || (field !== undefined && isLibrarySchema(fields[field]));
}

function annotations(fields: Fields): Fields {
  const kept = ["title", "annotations", "outputSchema", "tags"].filter((field) => isJson(fields[field]));
  return Object.fromEntries(kept.map((field) => [field, fields[field]]));
}

function isJson(value: unknown): boolean {
  return value !== undefined && value !== null && typeof value !== "function" && !isLibrarySchema(value);
}

/** An object of a class that has no name is no definition. */
function refuseClass(value: object, own: string | undefined, place: string): void {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const isPlain = prototype === null || prototype === Object.prototype || "toJSON" in value;
  if (!isPlain && own === undefined) {
    throw new TypeError(`${place} is a ${prototype.constructor.name}, and a tool is ${ACCEPTED}`);
  }
}

function isLibrarySchema(schema: unknown): boolean {
  if (typeof schema === "function") return true;
  if (typeof schema !== "object" || schema === null) return false;
  return "~standard" in schema || "_zod" in schema || "jsonSchema" in schema || isZod3(schema);
}

interface StandardJsonSchema {
  vendor?: string;
  jsonSchema?: { input: (options: { target: string }) => JsonObject };
}

/** Writes a schema of zod 3 or 4, of the AI SDK, or of another library that follows Standard Schema. */
export async function schemaOf(schema: unknown, place: string): Promise<JsonObject> {
  if (schema === undefined || schema === null) return { type: "object", properties: {} };
  if (typeof schema === "function" && !("~standard" in schema)) {
    return schemaOf((schema as () => unknown)(), place);
  }
  const fields = schema as Fields;
  // Of the AI SDK.
  if ("jsonSchema" in fields) return (await fields.jsonSchema) as JsonObject;
  const standard = fields["~standard"] as StandardJsonSchema | undefined;
  if (standard?.jsonSchema) {
    return withoutDialect(standard.jsonSchema.input({ target: "draft-2020-12" }));
  }
  if ("_zod" in fields) return ofZod4(schema);
  if (isZod3(schema)) return ofZod3(schema);
  if (typeof fields.toJsonSchema === "function") {
    return withoutDialect((fields.toJsonSchema as () => JsonObject)());
  }
  if (standard) {
    throw new TypeError(
      `${place} has a schema of ${standard.vendor ?? "a library"} that tells no JSON Schema; pass inputSchema as JSON`,
    );
  }
  return fields;
}

async function ofZod4(schema: unknown): Promise<JsonObject> {
  const { toJSONSchema } = (await import("zod")) as unknown as {
    toJSONSchema: (schema: unknown, options: object) => JsonObject;
  };
  return withoutDialect(toJSONSchema(schema, { io: "input", unrepresentable: "any" }));
}

function withoutDialect(schema: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(schema).filter(([key]) => key !== "$schema"));
}

/** Whether a string is text of tools, and not a path. */
export function isText(text: string, starts: string[]): boolean {
  const trimmed = text.trim();
  return trimmed === "" || trimmed.includes("\n") || starts.some((start) => trimmed.startsWith(start));
}
