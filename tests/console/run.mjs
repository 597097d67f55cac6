/** The console in a real browser. Prints what was checked; ends with 1 if something failed. */

import { readdirSync, readFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { agent } from "./agent.mjs";
import { launch } from "./browser.mjs";
import { catalog } from "./catalog.mjs";
import { evaluate } from "./evaluate.mjs";
import { home } from "./home.mjs";
import { HOSTILE } from "./hostile.mjs";
import { operations } from "./operations.mjs";
import { search } from "./search.mjs";
import { Server } from "./server.mjs";
import { servers } from "./servers.mjs";
import { shell } from "./shell.mjs";

const TOOLS = process.env.TOOLSCOUT_FIXTURES;
const LARGE = 20_000;
const CHECK_MS = 240_000;

/** The catalog that comes with the program, and one of hostile tools. */
async function usual() {
  const server = await Server.start();
  for (const file of readdirSync(TOOLS)) {
    const type = extname(file) === ".yaml" ? "application/yaml" : "application/json";
    const query = new URLSearchParams({ default_server: basename(file, extname(file)) });
    await server.post(`catalogs/default/tools?${query}`, readFileSync(join(TOOLS, file), "utf8"), type);
  }
  await server.post("catalogs", { name: "hostile" });
  await server.post("catalogs/hostile/tools", HOSTILE);
  await server.embedded("default");
  await server.embedded("hostile");
  return server;
}

/** A large catalog, by words alone: embedding it is not what is checked. */
async function large() {
  const server = await Server.start(["--embedder", "none"]);
  const tools = Array.from({ length: LARGE }, (_, index) => ({ server: "large", name: `tool_${String(index).padStart(5, "0")}`, description: `Does thing number ${index}.` }));
  const { id } = await server.post("catalogs/default/tools", tools);
  await server.until(async () => (await server.get(`tasks/${id}`)).status === "succeeded");
  return server;
}

/** Fails instead of waiting forever. */
function within(limit, work) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`it did not end within ${limit} ms`)), limit).unref();
  });
  return Promise.race([work, late]);
}

const only = process.argv[2] ?? "";
const world = { browser: await launch(), server: await usual(), large: await large() };
let failed = 0;
for (const [name, check] of Object.entries({ ...home, ...search, ...catalog, ...servers, ...agent, ...evaluate, ...operations, ...shell })) {
  if (!name.includes(only)) continue;
  try {
    const figures = await within(CHECK_MS, check(world));
    console.log(`ok: ${name}${figures ? `: ${figures}` : ""}`);
  } catch (error) {
    failed += 1;
    console.error(`failed: ${name}\n${error.stack}`);
  }
}
await world.browser.close();
await world.server.end();
await world.large.end();
// Not by `exitCode`: a failed check leaves its server running, for which Node.js would wait. They end with the process.
process.exit(failed > 0 ? 1 : 0);
