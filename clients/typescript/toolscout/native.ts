// The native module of this platform, which is in a package of its own.

import { createRequire } from "node:module";

import type * as Binding from "./binding.js";
import { ToolscoutError } from "./errors.js";

/** The package of this platform, such as `@toolscout/linux-x64-gnu`. */
function packageName(): string {
  const libc = process.platform === "linux" ? (isGlibc() ? "-gnu" : "-musl") : "";
  return `@toolscout/${process.platform}-${process.arch}${libc}`;
}

function isGlibc(): boolean {
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return report.header?.glibcVersionRuntime !== undefined;
}

function load(): typeof Binding {
  const name = packageName();
  try {
    return createRequire(import.meta.url)(name) as typeof Binding;
  } catch (cause) {
    const message =
      `the native module is in the package ${name}, which cannot be loaded: ${String(cause)}; install again ` +
      "without --omit=optional, on the platform that it is to run on";
    throw new ToolscoutError("no_native_module", message, { cause });
  }
}

export const binding = load();
