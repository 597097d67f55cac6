// Tools from what people have: each becomes a definition with its real schema, or is refused.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { tool as agentTool } from "@openai/agents";
import { jsonSchema, tool as aiTool } from "ai";
import { Catalog, ToolscoutError, type Tools } from "toolscout";
import { z } from "zod";
import { z as z3 } from "zod/v3";

import { OFFICE, folder, tool } from "./fixtures.js";

const PARAMETERS = z.object({
  city: z.string().describe("The city."),
  days: z.number().int().min(1).default(3),
  unit: z.enum(["c", "f"]).optional(),
});
const PARAMETERS_3 = z3.object({
  city: z3.string().describe("The city."),
  days: z3.number().int().min(1).default(3),
  unit: z3.enum(["c", "f"]).optional(),
  near: z3.union([z3.string(), z3.null()]).optional(),
  more: z3.record(z3.string(), z3.array(z3.number())).optional(),
});
const JSON_PARAMETERS = {
  type: "object" as const,
  properties: { city: { type: "string", description: "The city." }, days: { type: "integer" } },
  required: ["city"],
  additionalProperties: false,
};
const description = "Tells the weather.";

/** The shape of a tool of LangChain.js, which is not installed for a test. */
class DynamicStructuredTool {
  lc_namespace = ["langchain", "tools"];
  name = "weather";
  description = description;
  constructor(readonly schema: unknown) {}
  invoke() {
    return "";
  }
}

const KINDS: Record<string, Tools> = {
  "zod 4": { name: "weather", description, inputSchema: PARAMETERS },
  "zod 3": { name: "weather", description, inputSchema: PARAMETERS_3 },
  parameters: { name: "weather", description, parameters: PARAMETERS },
  "a record of the AI SDK, zod 4": { weather: aiTool({ description, inputSchema: PARAMETERS, execute: () => "" }) },
  "a record of the AI SDK, JSON": {
    weather: aiTool({ description, inputSchema: jsonSchema(JSON_PARAMETERS as never), execute: () => "" }),
  },
  "a map of the AI SDK": new Map([["weather", aiTool({ description, inputSchema: PARAMETERS, execute: () => "" })]]),
  "OpenAI Agents, zod": agentTool({ name: "weather", description, parameters: z.object({ city: z.string().describe("The city."), days: z.number() }), execute: () => "" }),
  "OpenAI Agents, JSON": agentTool({ name: "weather", description, strict: false, parameters: { ...JSON_PARAMETERS, additionalProperties: true } as never, execute: () => "" }),
  "LangChain, zod 4": new DynamicStructuredTool(PARAMETERS),
  "LangChain, zod 3": new DynamicStructuredTool(PARAMETERS_3),
  "LangChain, JSON": new DynamicStructuredTool(JSON_PARAMETERS),
  LlamaIndex: { metadata: { name: "weather", description, parameters: JSON_PARAMETERS }, call: () => "" },
  Mastra: { id: "weather", description, inputSchema: PARAMETERS, execute: () => "" },
  MCP: { name: "weather", description, inputSchema: JSON_PARAMETERS },
};

for (const [kind, given] of Object.entries(KINDS)) {
  test(`tools of ${kind} have their schemas`, async () => {
    await using catalog = await Catalog.temporary({ embedder: "table" });
    const forms: Tools[] = given instanceof Map || "weather" in (given as object) ? [given] : [given, [given], new Set([given as object])];
    for (const form of forms) {
      const { added, unchanged } = await catalog.add(form);
      assert.ok(added.length + unchanged === 1, kind);
      const weather = await catalog.get("weather");
      assert.ok(weather);
      assert.equal(weather.description, description);
      const { city, days } = weather.inputSchema.properties as Record<string, Record<string, unknown>>;
      assert.equal(city?.type, "string");
      assert.equal(city.description, "The city.");
      assert.match(String(days?.type), /integer|number/);
      assert.ok((weather.inputSchema.required as string[]).includes("city"));
      assert.ok(!JSON.stringify(weather.inputSchema).includes("_def"));
    }
    assert.deepEqual((await catalog.search("weather of a city")).ids, ["weather"]);
  });
}

test("schemas of zod 3 are written whole", async () => {
  await using catalog = await Catalog.temporary({ embedder: "none" });
  await catalog.add({ name: "weather", description, inputSchema: PARAMETERS_3 });
  const written = (await catalog.get("weather"))?.inputSchema;
  assert.deepEqual(written, {
    type: "object",
    properties: {
      city: { type: "string", description: "The city." },
      days: { type: "integer", minimum: 1, default: 3 },
      unit: { type: "string", enum: ["c", "f"] },
      near: { anyOf: [{ type: "string" }, { type: "null" }] },
      more: { type: "object", additionalProperties: { type: "array", items: { type: "number" } } },
    },
    required: ["city"],
  });
});

test("tools of another catalog are added", async () => {
  await using one = await Catalog.temporary({ embedder: "none" });
  await using other = await Catalog.temporary({ embedder: "none" });
  await one.add(OFFICE, { server: "office" });
  assert.equal((await other.add(one)).added.length, 3);
  const mail = await one.get("office/send_email");
  assert.ok(mail);
  assert.equal((await other.add(mail)).unchanged, 1);
  assert.equal((await other.add((await one.search("email")).hits.map((hit) => hit.tool))).added.length, 0);
});

class Odd {}

test("unknown objects are refused by type", async () => {
  await using catalog = await Catalog.temporary({ embedder: "none" });
  const add = catalog.add.bind(catalog) as (tools: unknown) => Promise<unknown>;
  const unknown = { "~standard": { version: 1, vendor: "nobody", validate: () => ({}) } };
  const refused: [unknown, RegExp][] = [
    [() => 1, /function, which tells no schema/],
    [[tool("a"), () => 1], /item 2, is a function, which tells no schema/],
    [[tool("a"), new Odd()], /item 2, is a Odd/],
    [[new Date()], /an object was expected/],
    [[Symbol("x")], /item 1, is symbol/],
    [[{ name: "a", inputSchema: unknown }], /a schema of nobody that tells no JSON Schema/],
  ];
  for (const [tools, text] of refused) {
    await assert.rejects(add(tools), (error: Error) => {
      assert.ok(error instanceof TypeError || error instanceof ToolscoutError, String(error));
      assert.match(error.message, text);
      return true;
    });
  }
  assert.equal((await catalog.stats()).tools, 0);
});

const SHOP = {
  openapi: "3.1.0",
  info: { title: "shop", version: "1" },
  servers: [{ url: "https://shop.test" }],
  paths: {
    "/pets": {
      get: { operationId: "listPets", tags: ["pets"] },
      post: { operationId: "addPet", tags: ["pets", "admin"] },
    },
    "/orders": { get: { operationId: "listOrders", tags: ["orders"] } },
  },
};

test("operations are selected", async () => {
  await using catalog = await Catalog.temporary({ embedder: "none" });
  const file = join(folder(), "shop.json");
  writeFileSync(file, JSON.stringify(SHOP));
  const cases: [object, string[]][] = [
    [{}, ["addPet", "listOrders", "listPets"]],
    [{ include: "listPets" }, ["listPets"]],
    [{ include: ["pets"], exclude: "admin" }, ["listPets"]],
    [{ exclude: ["/pets"] }, ["listOrders"]],
  ];
  for (const [options, names] of cases) {
    for (const document of [SHOP, JSON.stringify(SHOP), file]) {
      await catalog.sync("shop", document, options);
      const found = [];
      for await (const { name } of catalog) found.push(name);
      assert.deepEqual(found, names);
    }
  }
  await assert.rejects(catalog.add(SHOP, { include: "nothing" }), { code: "invalid_selection", message: /"nothing"/ });
});
