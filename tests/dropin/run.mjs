/**
 * Clients that others wrote, before the program and a provider that is played. Prints what was checked; ends with 1 if
 * something failed. Given a part of a check's name, runs that check alone. Without a program (`TOOLSCOUT=`) the clients
 * speak with the provider itself.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agent } from "./agent.mjs";
import { bounds } from "./bounds.mjs";
import { examples } from "./examples.mjs";
import { faults } from "./faults.mjs";
import { passing } from "./passing.mjs";
import { Provider } from "./provider.mjs";
import { sdks } from "./sdks.mjs";
import { Server } from "./server.mjs";
import { leaks, together } from "./together.mjs";
import { generate } from "./tools.mjs";

/** Beyond what a soak is asked to take. */
const CHECK_MS = 240_000 + 1000 * Number(process.env.DROPIN_SOAK_S ?? 0);

/** Fails instead of waiting forever. */
function within(limit, work) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`it did not end within ${limit} ms`)), limit).unref();
  });
  return Promise.race([work, late]);
}

async function checked(name, check, world) {
  const { complaints } = world.provider;
  complaints.length = 0;
  const from = Date.now();
  try {
    const figures = await within(CHECK_MS, check(world));
    if (complaints.length > 0) throw new Error(`the provider complains:\n${complaints.slice(0, 5).join("\n")}`);
    console.log(`ok: ${name}${figures ? `: ${figures}` : ""} (${((Date.now() - from) / 1000).toFixed(1)} s)`);
    return true;
  } catch (error) {
    console.error(`failed: ${name}\n${error.stack}${complaints.map((complaint) => `\ncomplaint: ${complaint}`).slice(0, 5).join("")}`);
    return false;
  }
}

const only = process.argv[2] ?? "";
const folder = mkdtempSync(join(tmpdir(), "toolscout-dropin-run-"));
const tools = generate();
const toolsFile = join(folder, "tools.json");
writeFileSync(toolsFile, JSON.stringify(tools.map(({ name, description, parameters }) => ({ name, description, parameters }))));
const provider = await Provider.start();
const server = process.env.TOOLSCOUT ? await Server.start(provider.url) : null;
let failed = 0;
for (const [name, check] of Object.entries({ ...examples, ...sdks, ...together, ...(server && { ...passing, ...agent, ...bounds, ...faults, ...leaks }) })) {
  if (name.includes(only) && !(await checked(name, check, { provider, server, tools, toolsFile }))) failed += 1;
}
await server?.end();
await provider.end();
rmSync(folder, { recursive: true, force: true });
// Not by `exitCode`: what a failed check leaves running ends with the process.
process.exit(failed > 0 ? 1 : 0);
