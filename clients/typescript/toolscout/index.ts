/**
 * Finds the right tools of large catalogs.
 *
 * @example
 * await using catalog = await Catalog.temporary();
 * await catalog.add([{ name: "create_issue", description: "Opens an issue in a repository." }]);
 * const results = await catalog.search("report a bug");
 *
 * @module
 */
export {
  Catalog,
  type AddOptions,
  type Changes,
  type EvaluateOptions,
  type OpenOptions,
  type SearchOptions,
  type Skipped,
  type Stats,
  type WriteOptions,
} from "./catalog.js";
export type { LongCall } from "./environment.js";
export { ApiError, ConnectionFailedError, ToolscoutError } from "./errors.js";
export type { AnsweredQuery, Evaluation, Figure, JudgedQuery } from "./evaluation.js";
export type { Queries, Tools } from "./input.js";
export { Hit, Results, type CompanionOf, type Degraded, type Kind, type Match, type NoMatch } from "./results.js";
export {
  Toolbox,
  type Injection,
  type Policy,
  type SearchArguments,
  type Searched,
  type SearchTool,
  type ToolboxOptions,
  type ToolboxState,
  type ToolFunction,
  type ToolNames,
} from "./toolbox.js";
export { Tool, type Annotations, type JsonObject, type ToolFormat } from "./tool.js";
