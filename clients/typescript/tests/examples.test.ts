// The examples, run as people run them. The quick start is run by the script that starts the tests.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import "./fixtures.js";

const example = (name: string) => fileURLToPath(new URL(`../examples/${name}.js`, import.meta.url));

test("an agent works over 2,000 tools", () => {
  const { stdout, stderr } = spawnSync(process.execPath, [example("agent")], { encoding: "utf8", timeout: 120_000 });
  const lines = stdout.trim().split("\n");
  assert.deepEqual(lines, ["2002 tools", "Done: sent Hello to ada@example.com", 'Done: {"id":"7","status":"shipped"}'], stderr);
});

test("the whole agent is short", () => {
  const text = readFileSync(new URL("../../examples/agent.ts", import.meta.url), "utf8");
  const agent = text.slice(text.indexOf("async function ask("), text.indexOf("/** Plays a model"));
  assert.ok(agent.trim().split("\n").length <= 40);
});
