// The doubles for tests of others.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "toolscout/client";
import { ScriptedCatalog, ScriptedServer } from "toolscout/testing";

test("a scripted catalog answers as told", async () => {
  const catalog = new ScriptedCatalog({ "write to Ada": ["mail/send", "other"], "*": ["other"], broken: new Error("No.") });
  assert.deepEqual((await catalog.search("write to Ada", { limit: 1 })).ids, ["mail/send"]);
  assert.deepEqual((await catalog.search(["anything", "write to Ada"])).ids, ["other", "mail/send"]);
  assert.deepEqual(catalog.calls[0], { method: "search", arguments: { query: "write to Ada", limit: 1 } });
  await assert.rejects(catalog.search("broken"), /No/);
  await assert.rejects(new ScriptedCatalog({ a: [] }).search("b"), /answer to "b"; there is "a"/);
});

test("a scripted server has real clients", async () => {
  const server = new ScriptedServer({ "write to Ada": ["mail/send"] });
  server.answersTo("GET", "/v1/stats", { uptime_s: 1 });
  server.answersTo("GET", "/v1/catalogs/default/tools/x", { error: { code: "unknown_tool", message: "No." } }, 404);
  const client = server.client({ retries: 0 });
  const answer = await client.search("write to Ada", { limit: 1 });
  assert.equal(answer.hits[0]?.id, "mail/send");
  assert.equal((await client.feedback(answer, "mail/send")).remembered, true);
  assert.equal((await client.usage()).uptime_s, 1);
  await assert.rejects(client.get("x"), ApiError);
  await assert.rejects(client.settings(), /GET \/v1\/catalogs\/default\/settings/);
  assert.deepEqual(server.calls[0], { method: "POST /v1/catalogs/default/search", arguments: { query: "write to Ada", k: 1 } });
});
