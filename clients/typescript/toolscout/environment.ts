// What this script's calls of the engine share.

import { ToolscoutError } from "./errors.js";
import { binding } from "./native.js";

export const environment = new binding.Environment();

// Embedding would hold up the end of the process for minutes, and temporary catalogs leave nothing.
process.on("exit", () => environment.end());

/** Calls the engine, whose errors become those of the package. */
export async function calling<T>(call: () => T | Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw converted(error);
  }
}

/** As `calling`, for what answers at once. */
export function callingNow<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw converted(error);
  }
}

function converted(error: unknown): unknown {
  if (!(error instanceof Error) || !("code" in error) || error instanceof ToolscoutError) {
    return error;
  }
  const [, code, message] = /^([a-z_]+): (.*)$/s.exec(error.message) ?? [];
  if (error.code === "GenericFailure" && code !== undefined && message !== undefined) {
    return new ToolscoutError(code, message);
  }
  // The other codes are about types, such as `StringExpected`.
  return new TypeError(error.message, { cause: error });
}

/** Options of calls that take longer. */
export interface LongCall {
  /** Ends the call early. */
  signal?: AbortSignal;
  /** Is told the number of texts that are embedded, and of all. What it throws ends the call. */
  progress?: (done: number, total: number) => void;
}

type Cancellation = ReturnType<typeof environment.cancellation>;
type Report = (done: number, total: number) => boolean;

/** Makes a call that ends with the signal, or when `progress` throws; the call fails with what ended it. */
export async function ending<T>(
  { signal, progress }: LongCall,
  call: (cancellation: Cancellation, report: Report) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const cancellation = environment.cancellation();
  const thrown: unknown[] = [];
  const report: Report = (done, total) => {
    try {
      progress?.(done, total);
      return true;
    } catch (error) {
      thrown.push(error);
      return false;
    }
  };
  const cancel = () => cancellation.cancel();
  signal?.addEventListener("abort", cancel);
  try {
    return await calling(() => call(cancellation, report));
  } catch (error) {
    if (thrown.length > 0) throw thrown[0];
    if (error instanceof ToolscoutError && error.code === "cancelled") signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}
