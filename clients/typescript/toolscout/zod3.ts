// The JSON Schema of schemas of zod 3, which has no writer of its own.

type JsonObject = Record<string, unknown>;

interface Definition {
  typeName?: string;
  description?: string;
  [field: string]: unknown;
}

/** Kinds that only wrap another schema, and the field that has it. */
const WRAPPERS: Record<string, string> = {
  ZodBranded: "type",
  ZodCatch: "innerType",
  ZodEffects: "schema",
  ZodPromise: "type",
  ZodReadonly: "innerType",
  ZodPipeline: "in",
};
const SIMPLE: Record<string, JsonObject> = {
  ZodString: { type: "string" },
  ZodBoolean: { type: "boolean" },
  ZodBigInt: { type: "integer" },
  ZodDate: { type: "string", format: "date-time" },
  ZodNull: { type: "null" },
  ZodAny: {},
  ZodUnknown: {},
  ZodNever: { not: {} },
  ZodUndefined: { not: {} },
  ZodVoid: {},
};
const FORMATS: Record<string, string> = { email: "email", url: "uri", uuid: "uuid", datetime: "date-time" };
/** Deeper ones refer to themselves. */
const MOST_LEVELS = 50;

export function isZod3(schema: unknown): boolean {
  return typeof definition(schema)?.typeName === "string";
}

/** Writes a schema of zod 3. */
export function jsonSchema(schema: unknown, level = 0): JsonObject {
  const def = definition(schema);
  if (!def || level > MOST_LEVELS) return {};
  const written = write(def, level);
  const text = def.description ?? (schema as { description?: string }).description;
  return text === undefined ? written : { ...written, description: text };
}

function definition(schema: unknown): Definition | undefined {
  if (typeof schema !== "object" || schema === null || !("_def" in schema)) return undefined;
  return schema._def as Definition;
}

function write(def: Definition, level: number): JsonObject {
  const kind = def.typeName ?? "";
  const inner = (field: string) => jsonSchema(def[field], level + 1);
  const wrapped = WRAPPERS[kind];
  if (wrapped !== undefined) return inner(wrapped);
  switch (kind) {
    case "ZodString":
      return { type: "string", ...textChecks(def) };
    case "ZodNumber":
      return numberOf(def);
    case "ZodObject":
      return objectOf(def, level);
    case "ZodOptional":
      return inner("innerType");
    case "ZodDefault":
      return { ...inner("innerType"), default: (def.defaultValue as () => unknown)() };
    case "ZodNullable":
      return { anyOf: [inner("innerType"), { type: "null" }] };
    case "ZodArray":
      return { type: "array", items: inner("type"), ...lengths(def) };
    case "ZodSet":
      return { type: "array", items: inner("valueType"), uniqueItems: true };
    case "ZodTuple":
      return { type: "array", prefixItems: list(def.items).map((item) => jsonSchema(item, level + 1)) };
    case "ZodRecord":
    case "ZodMap":
      return { type: "object", additionalProperties: inner("valueType") };
    case "ZodEnum":
      return { type: "string", enum: list(def.values) };
    case "ZodNativeEnum":
      return { enum: enumValues(def.values as Record<string, unknown>) };
    case "ZodLiteral":
      return { const: def.value };
    case "ZodUnion":
    case "ZodDiscriminatedUnion":
      return { anyOf: [...(def.options as Iterable<unknown>)].map((option) => jsonSchema(option, level + 1)) };
    case "ZodIntersection":
      return { allOf: [inner("left"), inner("right")] };
    case "ZodLazy":
      return jsonSchema((def.getter as () => unknown)(), level + 1);
    default: {
      const simple = SIMPLE[kind];
      if (simple !== undefined) return { ...simple };
      throw new TypeError(`a schema has a ${kind}, which JSON Schema does not have`);
    }
  }
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function objectOf(def: Definition, level: number): JsonObject {
  const shape = (def.shape as () => Record<string, unknown>)();
  const properties: JsonObject = {};
  const required: string[] = [];
  for (const [name, member] of Object.entries(shape)) {
    properties[name] = jsonSchema(member, level + 1);
    if (!isOptional(member)) required.push(name);
  }
  const written: JsonObject = { type: "object", properties };
  if (required.length > 0) written.required = required;
  if (def.unknownKeys === "strict") written.additionalProperties = false;
  return written;
}

function isOptional(schema: unknown): boolean {
  const def = definition(schema);
  const wrapped = WRAPPERS[def?.typeName ?? ""];
  if (def && wrapped !== undefined) return isOptional(def[wrapped]);
  return ["ZodOptional", "ZodDefault"].includes(def?.typeName ?? "");
}

function textChecks(def: Definition): JsonObject {
  const written: JsonObject = {};
  for (const check of list(def.checks) as { kind: string; value?: unknown; regex?: RegExp }[]) {
    const format = FORMATS[check.kind];
    if (format !== undefined) written.format = format;
    if (check.kind === "min" || check.kind === "length") written.minLength = check.value;
    if (check.kind === "max" || check.kind === "length") written.maxLength = check.value;
    if (check.kind === "regex") written.pattern = check.regex?.source;
  }
  return written;
}

function numberOf(def: Definition): JsonObject {
  const written: JsonObject = { type: "number" };
  for (const check of list(def.checks) as { kind: string; value?: unknown; inclusive?: boolean }[]) {
    if (check.kind === "int") written.type = "integer";
    if (check.kind === "min") written[check.inclusive ? "minimum" : "exclusiveMinimum"] = check.value;
    if (check.kind === "max") written[check.inclusive ? "maximum" : "exclusiveMaximum"] = check.value;
    if (check.kind === "multipleOf") written.multipleOf = check.value;
  }
  return written;
}

function lengths(def: Definition): JsonObject {
  const written: JsonObject = {};
  const bounds: [string, string][] = [["minLength", "minItems"], ["maxLength", "maxItems"]];
  for (const [field, keyword] of bounds) {
    const bound = def[field] as { value: number } | null | undefined;
    if (bound) written[keyword] = bound.value;
  }
  return written;
}

/** An enum of TypeScript has its numbers as names too. */
function enumValues(members: Record<string, unknown>): unknown[] {
  const names = Object.keys(members).filter((name) => typeof members[members[name] as string] !== "number");
  return names.map((name) => members[name]);
}
