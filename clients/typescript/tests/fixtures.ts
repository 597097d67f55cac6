// Tools that tests share, and other scripts and programs that they run.

import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

// Settings of whoever runs the tests do not count.
for (const name of Object.keys(process.env)) {
  if (name.startsWith("TOOLSCOUT_") && name !== "TOOLSCOUT_SEARCHES") delete process.env[name];
}
process.env.TOOLSCOUT_CONFIG = "/dev/null";

const here = fileURLToPath(new URL(".", import.meta.url));

/** The installed program. */
export const PROGRAM = join(here, "../../node_modules/.bin/toolscout");

export function folder(): string {
  return mkdtempSync(join(tmpdir(), "toolscout-test-"));
}

export function tool(name: string, description = "", parameters: Record<string, string> = {}) {
  const properties = Object.fromEntries(Object.entries(parameters).map(([key, type]) => [key, { type }]));
  return { name, description, inputSchema: { type: "object", properties } };
}

export const OFFICE = [
  tool("send_email", "Sends an email to one or more recipients.", { to: "string" }),
  tool("create_event", "Creates an event in a calendar.", { title: "string" }),
  tool("create_issue", "Opens an issue in a repository, such as a bug.", { title: "string" }),
];

const VERBS = ["create", "delete", "list", "update", "archive", "export", "rename", "share", "count", "copy"];
const THINGS = (
  "invoice customer ticket photo playlist recipe flight hotel server database branch contract employee shipment coupon " +
  "meeting survey sensor garden podcast library parcel budget ledger course exam patient vaccine bridge tunnel satellite " +
  "rocket tractor harvest museum painting statue novel poem opera violin drum stadium referee tournament medal passport " +
  "visa embassy border"
).split(" ");

/** Tools with different names. */
export function many(count: number) {
  return Array.from({ length: count }, (_, number) => {
    const verb = VERBS[number % VERBS.length] ?? "";
    const thing = THINGS[Math.floor(number / VERBS.length) % THINGS.length] ?? "";
    const series = Math.floor(number / (VERBS.length * THINGS.length));
    const name = `${verb}_${thing}${series > 0 ? `_${series}` : ""}`;
    return tool(name, `${verb}s a ${thing} of series ${series}.`, { id: "string" });
  });
}

/** Runs code in a process of its own. */
export function runScript(code: string) {
  const start = `import { Catalog } from "toolscout"; import { many } from ${JSON.stringify(import.meta.url)};\n`;
  const line = ["--expose-gc", "--input-type=module", "--eval", start + code];
  return spawnSync(process.execPath, line, { encoding: "utf8", timeout: 300_000, cwd: here });
}

/** A server of the installed program, and its address. */
export async function serve(data: string, ...more: string[]): Promise<{ url: string; server: ChildProcess }> {
  const line = ["--data", data, "--embedder", "table", "serve", "--listen", "127.0.0.1:0", "--log", "warn"];
  const server = spawn(PROGRAM, [...line, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  for await (const chunk of server.stdout.iterator({ destroyOnReturn: false })) {
    printed += String(chunk);
    const url = /listening on (http:\S+)/.exec(printed)?.[1];
    if (!url) continue;
    while (!(await fetch(`${url}/readyz`)).ok) await sleep(50);
    return { url, server };
  }
  throw new Error(`the server ended: ${printed}`);
}

export async function end(server: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
  server.kill(signal);
  if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
  return server.exitCode;
}
