/** Screen Operations: figures, the audit log, and keys. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { scripted } from "./agent.mjs";
import { barriers, close, open, picture } from "./browser.mjs";
import { Server } from "./server.mjs";

const RUN = "window.hostileRan = true";
const HOSTILE = `<img src=x onerror="${RUN}"> \u202Eturned\u202C`;
const SEND = { name: "gmail__send_email", arguments: { to: ["anna@example.com"], subject: HOSTILE, body: "Take an umbrella.", format: "PLAIN" } };
const TURNS = [
  { reply: { calls: [{ name: "tool_search", arguments: { query: "send an email", limit: 2 } }] } },
  { reply: { calls: [SEND] } },
  { reply: { calls: [SEND] } },
  { reply: { text: "One was sent." } },
  { tool: "gmail/send_email", result: { sent: true } },
];

/** A server whose agent has made one call, and was refused another. */
async function afterCalls() {
  const server = await scripted(TURNS);
  const chat = await fetch(`${server.url}/v1/agent/chat`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ query: "Write to Anna" }) });
  let [text, approvals] = ["", 0];
  for await (const part of chat.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data:"));
      const { type, id } = data ? JSON.parse(data.slice(5)) : {};
      if (type !== "approval_required") continue;
      approvals += 1;
      await server.post("agent/approve", { id, approve: approvals === 1, reason: "once is enough" });
    }
  }
  return server;
}

/** A server with a shadow, whose words put the tool first that clients call. */
async function withShadow() {
  const folder = mkdtempSync(join(tmpdir(), "toolscout-shadow-"));
  const [words, config] = ["words.json", "config.toml"].map((name) => join(folder, name));
  writeFileSync(words, JSON.stringify({ pins: { first: { query: "send a message", tool: "chat/post" } } }));
  writeFileSync(config, `[shadow]\nshare = 1.0\nwords = ${JSON.stringify(words)}\n`);
  const server = await Server.start(["--embedder", "none", "--config", config]);
  await server.post("catalogs/default/tools", [
    { server: "mail", name: "send_message", description: "Sends a message." },
    { server: "chat", name: "post", description: "Posts a message to a channel of the team, for all to read." },
  ]);
  const shadow = () => server.get("catalogs/default/usage/shadow");
  const { generation } = await server.get("catalogs/default");
  await server.until(async () => (await shadow()).now.generation === generation);
  for (let call = 0; call < 24; call += 1) {
    const { feedback_token: token } = await server.post("catalogs/default/search", { query: "send a message" });
    await server.until(async () => (await shadow()).now.waiting === 0);
    await server.post("catalogs/default/feedback", { feedback_token: token, tool: "chat/post", outcome: "used" });
  }
  await server.until(async () => (await shadow()).calls === 24);
  return [server, folder];
}

const search = (server, query, more = {}) => server.post("search", { query, ...more });
const views = (page, name) => page.getByRole("navigation", { name: "Operations" }).getByRole("link", { name }).click();

export const operations = {
  async "figures come by themselves, and can be paused"({ browser, server }) {
    await search(server, "send an email", { format: "openai" });
    const page = await open(browser, server);
    let reads = 0;
    page.on("request", (request) => { reads += request.url().endsWith("/v1/stats") ? 1 : 0; });
    await page.getByRole("link", { name: "Operations" }).click();
    await page.locator(".gauge").first().waitFor();
    const searches = () => page.locator("tr", { has: page.getByRole("rowheader", { name: "Searches", exact: true }) }).first().locator("td").first().innerText();
    const before = Number((await searches()).replace(/,/gu, ""));
    assert.ok(before > 0);
    for (const query of ["create an issue", "will it rain", "book a flight"]) await search(server, query);
    await page.waitForFunction((count) => [...document.querySelectorAll("tr")].some((row) => row.cells[0].textContent === "Searches" && Number(row.cells[1].textContent.replace(/,/gu, "")) === count), before + 3);
    await page.locator(".spark path").first().waitFor({ state: "attached" });
    assert.match(await page.locator(".card", { hasText: "Tokens saved" }).innerText(), /Searches in a model's format\s+[1-9]/u);
    await page.waitForTimeout(4000);
    await picture(page, "operations");
    await page.getByRole("button", { name: "Pause" }).click();
    const read = reads;
    await page.waitForTimeout(4000);
    assert.equal(reads, read, "nothing is read while it is paused");
    await page.getByRole("button", { name: "Pause" }).click();
    await page.waitForResponse((response) => response.url().endsWith("/v1/stats"));
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator("#query").waitFor();
    const left = reads;
    await page.waitForTimeout(4000);
    assert.equal(reads, left, "nothing is read while another screen is shown");
    await close(page);
  },

  async "figures of hours and days are kept over a restart"({ browser }) {
    let server = await Server.start(["--embedder", "none"]);
    await server.post("catalogs/default/tools", [{ name: "weigh", description: "Weighs a parcel." }]);
    for (let number = 0; number < 3; number += 1) await server.post("search", { query: "weigh a parcel" });
    const { data } = server;
    await server.stop();
    server = await Server.start(["--embedder", "none"], 0, data);
    const page = await open(browser, server, { hash: "#/operations" });
    for (const step of ["hour", "day", "minute"]) {
      await page.getByLabel("Time", { exact: true }).selectOption(step);
      await page.getByRole("img", { name: /^Searches: at most 3, /u }).waitFor();
    }
    await page.locator(".chart title", { hasText: /: 3$/u }).first().waitFor({ state: "attached" });
    await picture(page, "operations-history");
    assert.deepEqual((await barriers(page)).serious, []);
    await close(page);
    await server.end();
  },

  async "figures go on when the server is back"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    const page = await open(browser, server, { hash: "#/operations", expected: /Failed to load|ERR_/u });
    await page.locator(".gauge").first().waitFor();
    await server.stop();
    await page.locator("#connection", { hasText: "does not answer" }).waitFor();
    assert.ok(await page.locator(".gauge").first().isVisible(), "the last figures stay in sight");
    const again = await Server.start(["--embedder", "none"], server.port, server.data);
    await page.waitForResponse((response) => response.url().endsWith("/v1/stats") && response.ok(), { timeout: 30_000 });
    await page.waitForFunction(() => document.getElementById("connection").textContent === "");
    await close(page);
    await again.end();
  },

  async "the use of tools shows which are found and called, and which nobody uses"({ browser }) {
    const server = await afterCalls();
    const page = await open(browser, server, { hash: "#/operations?view=usage" });
    const used = page.getByRole("group", { name: "Tools by their use" });
    const send = used.locator("tr", { has: page.getByRole("rowheader", { name: "gmail/send_email" }) });
    await send.waitFor();
    const cells = await send.locator("td").allTextContents();
    assert.deepEqual([cells[0], cells[3], cells[4]], ["1", "2", "1"], "searches, calls, errors");
    assert.match(await send.locator("td span").first().getAttribute("title"), /denied: 1/u);
    await page.getByRole("heading", { name: /^\d+ of \d+ tools unused$/u }).waitFor();
    await page.getByText("Nothing was used of").waitFor();
    await page.getByText("queries = true").waitFor();
    await picture(page, "operations-usage");
    await page.getByLabel("Order").selectOption("errors");
    await send.waitFor();
    assert.match(page.url(), /view=usage&catalog=\w+&days=30&sort=errors/u);
    await close(page);
    await server.end();
  },

  async "a shadow shows what a switch would change"({ browser }) {
    const [server, folder] = await withShadow();
    const hash = "#/operations?view=usage";
    for (const [dark, width, height, name] of [[false, 1280, 1400, "operations-shadow"], [true, 1280, 1400, "operations-shadow-dark"], [false, 360, 1900, "phone-operations-shadow"], [true, 360, 1900, "phone-operations-shadow-dark"]]) {
      const page = await open(browser, server, { dark, width, height, hash });
      const card = page.locator(".card", { has: page.getByRole("heading", { name: "Shadow: what a switch would change" }) });
      await card.waitFor();
      const text = await card.innerText();
      assert.match(text, /Second answers to 100% of the searches, with .*words\.json\./u);
      assert.match(text, /Switching gains 1\.00 ± \.1\d in first place of called tools \(24 calls, 24 searches compared\)\./u);
      assert.match(text, /Called tool is the first hit\s+0\.000\s+1\.000\s+\+1\.000 ± 0\.125/u);
      assert.match(text, /of CPU time, 0 searches waiting, 0 skipped/u);
      const day = card.getByRole("group", { name: "The shadow by day" }).locator("tbody tr");
      assert.deepEqual(await day.locator("td").allTextContents(), ["24", "24", "0", "24"]);
      await card.scrollIntoViewIfNeeded();
      assert.deepEqual((await barriers(page)).serious, []);
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window, `it is ${content} wide`);
      await picture(page, name);
      await close(page);
    }
    await server.end();
    rmSync(folder, { recursive: true });
  },

  async "calls are in the audit log, which is filtered and verified"({ browser }) {
    const server = await afterCalls();
    const page = await open(browser, server, { hash: "#/operations?view=audit" });
    await page.locator(".entry").nth(1).waitFor();
    assert.deepEqual(await page.locator(".entry .call-state").allTextContents().then((states) => states.map((state) => state.replace(/,.*/u, ""))), ["refused", "ok"]);
    await page.locator(".entry summary").first().click();
    const facts = await page.locator(".entry-facts").innerText();
    assert.match(facts, /refused by http: once is enough/u);
    assert.ok(facts.includes("<img src=x onerror="), "markup is shown as it is");
    assert.ok(facts.includes("U+202E"));
    await page.getByText("Not verified").waitFor();
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.locator(".check", { hasText: "Unchanged: 3 entries" }).waitFor();
    await picture(page, "operations-audit");
    await page.getByLabel("Decision").selectOption("deny");
    await page.getByText("No entry passes these filters").waitFor();
    await page.getByLabel("Decision").selectOption("ask");
    await page.locator(".entry").nth(1).waitFor();
    await page.getByLabel("Tool", { exact: true }).fill("gmail/none");
    await page.getByText("No entry passes these filters").waitFor();
    assert.match(page.url(), /view=audit&name=gmail%2Fnone&decision=ask/u);
    await page.reload();
    assert.equal(await page.getByLabel("Tool", { exact: true }).inputValue(), "gmail/none");
    await page.getByLabel("Tool", { exact: true }).fill("SEND_em");
    await page.locator(".entry").nth(1).waitFor();
    await close(page);
    await server.end();
  },

  async "calls that wait are approved and refused from a list"({ browser }) {
    const server = await scripted(TURNS);
    const chat = fetch(`${server.url}/v1/agent/chat`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ query: "Write to Anna" }) }).then((answer) => answer.text());
    const page = await open(browser, server, { hash: "#/operations?view=approvals" });
    const card = page.getByRole("article", { name: /send_email/u }).first();
    await card.waitFor();
    assert.ok((await card.innerText()).includes("<img src=x onerror="), "markup is shown as it is");
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "operations-approvals");
    await card.getByRole("button", { name: "Approve" }).click();
    await card.waitFor({ state: "detached" });
    await card.getByLabel("Reason of a refusal").fill("once is enough");
    await card.getByRole("button", { name: "Refuse" }).click();
    assert.match(await chat, /"status":"answered"/u);
    await page.getByText("No call waits").waitFor();
    await close(page);
    await server.end();
  },

  async "a call that waits shows on every screen until somebody decides"({ browser }) {
    const server = await scripted(TURNS);
    const page = await open(browser, server, { hash: "#/search" });
    const line = page.locator("#waiting");
    await page.locator("#query").waitFor();
    assert.equal(await page.title(), "Search · toolscout");
    const chat = fetch(`${server.url}/v1/agent/chat`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ query: "Write to Anna" }) }).then((answer) => answer.text());
    await line.getByText(/^1 call waits for a person:/u).waitFor();
    assert.match(await line.innerText(), /gmail\/send_email, \d+:\d\d left\./u);
    assert.equal(await page.title(), "(1) Search · toolscout");
    await page.getByRole("link", { name: /^Operations\s*1 waiting for approval$/u }).waitFor();
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "waiting");
    await page.setViewportSize({ width: 390, height: 700 });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
    await picture(page, "phone-waiting");
    await page.setViewportSize({ width: 1280, height: 860 });
    await page.getByRole("link", { name: "Catalog" }).click();
    await page.locator(".row").first().waitFor();
    await line.getByRole("link", { name: "Decide" }).click();
    const card = page.getByRole("article", { name: /send_email/u }).first();
    await card.getByText(/^\d+:\d\d left$/u).waitFor();
    assert.ok(await line.isHidden(), "the list itself says it");
    for (let decided = 0; decided < 2; decided += 1) {
      await card.getByRole("button", { name: "Refuse" }).click();
      await card.waitFor({ state: "detached" });
      if (decided === 0) await card.waitFor();
    }
    assert.match(await chat, /"status":"answered"/u);
    await page.waitForFunction(() => document.title === "Operations · toolscout");
    await close(page);
    await server.end();
  },

  async "the first key is used at once; others are made and revoked, the last with more care"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    const page = await open(browser, server, { hash: "#/operations?view=keys", expected: /409|401/u });
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "First key" }).click();
    await dialog.getByRole("button", { name: "Create key" }).click();
    const first = await dialog.locator(".secret code").innerText();
    assert.match(first, /^tsk_/u);
    for (let press = 0; press < 3; press += 1) await page.keyboard.press("Escape");
    assert.ok(await dialog.isVisible(), "a key that is shown once stays until somebody says that it is stored");
    await dialog.getByRole("button", { name: "I have stored it" }).click();
    await page.locator(".api-key", { hasText: "of this tab" }).waitFor();
    assert.equal((await fetch(`${server.url}/v1/catalogs`)).status, 401);
    assert.ok(await page.getByRole("button", { name: "Key", exact: true }).isVisible());
    assert.ok(!page.url().includes(first));

    await page.getByRole("button", { name: "New key" }).click();
    const create = dialog.getByRole("button", { name: "Create key" });
    await dialog.getByLabel("default", { exact: true }).uncheck();
    await dialog.getByLabel("Others, with commas between them").fill(" , ");
    assert.ok(await create.isDisabled(), "a key is for some catalog");
    await dialog.getByLabel("default", { exact: true }).check();
    await dialog.getByLabel("Others, with commas between them").fill("later");
    await dialog.getByLabel("What you call it").fill("build server");
    await picture(page, "operations-new-key");
    await dialog.getByLabel(/^call/u).check();
    await dialog.getByLabel("Valid").selectOption({ label: "30 days" });
    await create.click();
    const second = await dialog.locator(".secret code").innerText();
    assert.match(await dialog.innerText(), /no catalog yet named later/u);
    await dialog.getByRole("button", { name: "I have stored it" }).click();
    const asked = () => fetch(`${server.url}/v1/catalogs/default`, { headers: { Authorization: `Bearer ${second}` } });
    assert.equal((await asked()).status, 200);
    const row = page.locator(".api-key", { hasText: second.split("_")[1] });
    assert.match(await row.innerText(), /build server[\s\S]*search[\s\S]*call[\s\S]*catalogs default, later · created[\s\S]*expires/u);
    await picture(page, "operations-keys");
    await row.getByRole("button", { name: /^Revoke/u }).click();
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await row.getByText("revoked", { exact: true }).waitFor();
    assert.equal((await asked()).status, 401);

    await page.getByRole("button", { name: /^Revoke/u }).click();
    await dialog.getByText("the page will ask for another one").waitFor();
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await dialog.getByText("last admin key for all catalogs").waitFor();
    const revoke = dialog.getByRole("button", { name: "Revoke" });
    assert.ok(await revoke.isDisabled(), "the id is not typed yet");
    await dialog.getByLabel(/^Type/u).fill(first.split("_")[1]);
    await revoke.click();
    await dialog.getByText("was revoked").waitFor();
    await close(page);
    await server.end();
  },

  async "a limited key is told what it may not see"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    const token = server.command("keys", "create", "--scope", "admin", "--catalogs", "default").trim();
    const page = await open(browser, server, { hash: "#/operations", expected: /401|403/u });
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("API key").fill(token);
    await dialog.getByRole("button", { name: "Use this key" }).click();
    await page.locator(".views a").first().waitFor();
    assert.deepEqual(await page.locator(".views a").allInnerTexts(), ["Use of tools", "Approvals"]);
    // An address of another person may lead there all the same.
    for (const view of ["figures", "audit", "keys"]) {
      await page.goto(`${server.url}/#/operations?view=${view}`);
      await page.getByText("Not with this key").waitFor();
    }
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator("#query").waitFor();
    await close(page);
    await server.end();
  },

  async "no serious barrier in operations, and a phone shows them"({ browser }) {
    const server = await afterCalls();
    for (const dark of [false, true]) {
      const page = await open(browser, server, { dark, hash: "#/operations" });
      await page.locator(".gauge").first().waitFor();
      assert.deepEqual((await barriers(page)).serious, []);
      await views(page, "Audit log");
      await page.locator(".entry summary").first().click();
      await page.getByRole("button", { name: "Verify now" }).click();
      await page.locator(".check", { hasText: "Unchanged" }).waitFor();
      assert.deepEqual((await barriers(page)).serious, []);
      await views(page, "Keys");
      await page.getByRole("button", { name: "First key" }).click();
      assert.deepEqual((await barriers(page)).serious, []);
      await close(page);
    }
    for (const view of ["figures", "audit", "keys"]) {
      const page = await open(browser, server, { width: 360, height: 760, hash: `#/operations?view=${view}` });
      await page.locator(".gauge, .entry, .empty").first().waitFor();
      await pause(300);
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window, `${view} is ${content} wide`);
      const nav = await page.locator("#nav [aria-current]").evaluate((link) => link.getBoundingClientRect().right <= innerWidth && link.offsetHeight < 40);
      assert.ok(nav, "the screen is named in sight, in one line");
      if (view === "figures") await picture(page, "phone-operations");
      await close(page);
    }
    await server.end();
  },
};
