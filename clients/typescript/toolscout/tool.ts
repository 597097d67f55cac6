import type * as Binding from "./binding.js";
import { check } from "./checks.js";
import { callingNow } from "./environment.js";

/** The formats of tools that providers of models take. */
export type ToolFormat =
  | "openai"
  | "openai_responses"
  | "anthropic"
  | "anthropic_reference"
  | "mcp"
  | "names"
  | "signature";

export type JsonObject = Record<string, unknown>;

/** MCP's hints of a tool. */
export interface Annotations {
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

interface Fields {
  id: string;
  name: string;
  server: string;
  modelName: string;
  title: string | null;
  description: string;
  inputSchema: JsonObject;
  outputSchema: JsonObject | null;
  annotations: Annotations;
  tags: string[];
  metadata: JsonObject;
}

/** The definition of a tool. */
export class Tool {
  /** `server/name`, or the name alone for a tool without a server. */
  readonly id: string;
  /** The name within its server. */
  readonly name: string;
  /** The server; empty for a tool without one. */
  readonly server: string;
  /** The name under which a model calls it: letters, digits, `_` and `-`, at most 64. */
  readonly modelName: string;
  /** A name to show to people. */
  readonly title: string | null;
  readonly description: string;
  /** The JSON Schema of its arguments. */
  readonly inputSchema: JsonObject;
  /** The JSON Schema of its structured result, where declared. */
  readonly outputSchema: JsonObject | null;
  /** MCP's hints that it declares. */
  readonly annotations: Annotations;
  readonly tags: string[];
  /** All other fields of its definition. */
  readonly metadata: JsonObject;
  readonly #native: Binding.Tool;

  /** @internal */
  constructor(native: Binding.Tool) {
    this.#native = native;
    const fields = JSON.parse(native.json()) as Fields;
    this.id = fields.id;
    this.name = fields.name;
    this.server = fields.server;
    this.modelName = fields.modelName;
    this.title = fields.title;
    this.description = fields.description;
    this.inputSchema = fields.inputSchema;
    this.outputSchema = fields.outputSchema;
    this.annotations = fields.annotations;
    this.tags = fields.tags;
    this.metadata = fields.metadata;
  }

  /** The definition in a provider's format. */
  to(format: "names" | "signature"): string;
  to(format: Exclude<ToolFormat, "names" | "signature">): JsonObject;
  to(format: ToolFormat): string | JsonObject;
  to(format: ToolFormat): string | JsonObject {
    check("format", format, "string");
    return JSON.parse(callingNow(() => this.#native.to(format))) as string | JsonObject;
  }
}
