/**
 * What the examples share: the tools of a company, what calls them, and the questions, from the command line.
 *
 *     node EXAMPLE.js TOOLS.json QUESTION...
 */

import { readFileSync } from "node:fs";

/** Where toolscout serves. */
export const TOOLSCOUT = process.env.TOOLSCOUT_URL ?? "http://127.0.0.1:7700";

export type Tool = { name: string; description: string; parameters: { type: "object"; [key: string]: unknown } };

const [file, ...questions] = process.argv.slice(2);
export const TOOLS: Tool[] = JSON.parse(readFileSync(file ?? "tools.json", "utf8"));
export const QUESTIONS = questions;

/** Does what a tool does; here it only repeats what it was given. */
export function call(name: string, given: unknown): string {
  return `${name}(${Object.values(given as object).join(", ")})`;
}
