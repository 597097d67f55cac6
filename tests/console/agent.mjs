/** Screen Agent, with a scripted model and scripted tools behind the real gate. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { barriers, close, open, picture } from "./browser.mjs";
import { Server } from "./server.mjs";

const RUN = "window.hostileRan = true";
const HOSTILE = `<script>${RUN}</script><img src="http://192.0.2.1/x.png" onerror="${RUN}"> \u202Eturned\u202C \u200B [link](javascript:${RUN})`;
const QUESTION = "Will it rain in Bergen tomorrow? If so, mail Anna and Ben to take an umbrella.";

const mail = (to) => ({ name: "gmail__send_email", arguments: { to: [to], subject: "Rain tomorrow", body: "Take an umbrella.\nIt will rain in the afternoon.", format: "PLAIN" } });
const FORECAST = {
  place: "Bergen", summary: "8 mm of rain", days: [{ date: "2026-03-02", high: 6, low: 2, rain_mm: 8 }],
  results: [{ url: "http://192.0.2.1/bergen", title: "Bergen, two days", content: "8 mm of rain tomorrow." }, { url: `javascript:${RUN}`, title: `<b>${RUN}</b>`, content: HOSTILE }],
};
const RAIN = [
  { reply: { thinking: "The forecast first, then the mails. ", calls: [{ name: "tool_search", arguments: { query: "weather forecast for a city", limit: 5 } }] } },
  { reply: { text: "I look at the forecast.", calls: [{ name: "weather__getForecast", arguments: { place: "Bergen", days: "2" } }] } },
  { reply: { calls: [{ name: "tool_search", arguments: { query: "send an email", limit: 2 } }] } },
  { reply: { calls: [mail("anna@example.com")] } },
  { reply: { calls: [mail("ben@example.com")] } },
  { reply: { text: "It will rain, about 8 mm. Anna knows; the mail to Ben was not sent.\n\n```json\n{ \"rain_mm\": 8 }\n```\nThat is all.", usage: { input: 2140, output: 47 } } },
  { for: "recommend", reply: { text: JSON.stringify(["Is it dry in the morning?", "Will it be colder at the weekend?", "Try the mail to Ben again"]) } },
  { tool: "weather/getForecast", result: FORECAST },
  { tool: "gmail/send_email", result: { sent: true, id: "m-1" } },
];
const HANGS = [
  { reply: { text: "One moment.", calls: [{ name: "tool_search", arguments: { query: "select:weather/getHourlyForecast" } }] } },
  { reply: { calls: [{ name: "weather__getHourlyForecast", arguments: { place: "Bergen" } }] } },
  { tool: "weather/getHourlyForecast", hang: true },
];
const PLANNED = {
  actions: [
    { action: "weather__getForecast", arguments: { place: "Bergen" } },
    { action: "weather__getForecast", arguments: { place: "Oslo" } },
    { step: "mail", action: "gmail__send_email", arguments: { to: ["anna@example.com"], subject: "${1.place}", body: "${2.summary}" } },
  ],
};

/** More than the 30 of which a catalog is searched. */
const TOOLS = { "weather.yaml": "application/yaml", "gmail.json": "application/json", "maps.json": "application/json" };

const answers = (text) => [{ reply: { text } }];

/**
 * A server whose model plays back these lines, with the tools that come with the program.
 * @param {Server} [before] whose place it takes
 */
export async function scripted(lines, flags = [], before = undefined) {
  const script = join(mkdtempSync(join(tmpdir(), "toolscout-script-")), "script.jsonl");
  writeFileSync(script, lines.map((line) => JSON.stringify(line)).join("\n"));
  const server = await Server.start(["--embedder", "none"], before?.port, before?.data, ["--llm", `script:${script}`, "--max-rounds", "8", ...flags]);
  for (const [file, type] of Object.entries(TOOLS)) {
    await server.post(`catalogs/default/tools?default_server=${file.split(".", 1)[0]}`, readFileSync(join(process.env.TOOLSCOUT_FIXTURES, file), "utf8"), type);
  }
  return server;
}

/** Runs a check against such a server. */
async function within(lines, flags, check) {
  const server = await scripted(lines, flags);
  try {
    return await check(server);
  } finally {
    await server.end();
  }
}

async function send(page, text) {
  await page.getByLabel("Request").fill(text);
  await page.keyboard.press("Enter");
}

const ended = (page, word, turn = 0) => page.locator(".turn").nth(turn).locator(".turn-foot", { hasText: word }).waitFor();

export const agent = {
  async "a search injects tools, one call is approved and one refused, and the turn is kept"({ browser }) {
    await within([...RAIN, ...HANGS], ["--recommend", "--tool-budget", "1100"], async (server) => {
      const page = await open(browser, server, { hash: "#/agent", width: 1140, height: 900 });
      await page.getByText("Ask, and watch the tools").waitFor();
      await page.locator(".model", { hasText: "Model script" }).waitFor();
      assert.ok(await page.locator(".advice").isHidden());
      await send(page, QUESTION);
      const first = page.locator(".approval");
      await page.getByText("May this call be made?").waitFor();
      const toolbox = page.locator(".toolbox");
      assert.match(await toolbox.innerText(), /[\d,]+ of 1,100 tokens[\s\S]*send an email\s*\d+[\s\S]*gmail\/send_email[\s\S]*Evicted[\s\S]*the budget was needed/u);
      const forecast = page.locator(".call", { hasText: "weather__getForecast" });
      assert.match(await forecast.innerText(), /done[\s\S]*only reads[\s\S]*given:\s*"days": "2"[\s\S]*sent:\s*"days": 2[\s\S]*number was given as text/u);
      const asked = page.locator(".call", { has: first });
      assert.match(await asked.innerText(), /changes something[\s\S]*rule[\s\S]*anna@example\.com[\s\S]*"plain"[\s\S]*left/u);
      await picture(page, "agent");
      await page.locator(".step summary").first().click();
      assert.deepEqual((await barriers(page)).serious, []);
      await first.getByRole("button", { name: "Approve" }).click();
      await page.locator(".call", { hasText: "ben@example.com" }).locator(".approval").waitFor();
      assert.match(await page.locator(".call", { hasText: "anna@example.com" }).innerText(), /done[\s\S]*approved by[\s\S]*Result/u);
      await page.getByLabel("Reason of a refusal").fill("Ben is away");
      await page.getByRole("button", { name: "Refuse" }).click();
      await ended(page, "Answered");
      assert.match(await page.locator(".call", { hasText: "ben@example.com" }).innerText(), /refused by[\s\S]*reason: Ben is away[\s\S]*denied/u);
      assert.equal(await page.locator(".prose pre").innerText(), '{ "rain_mm": 8 }');
      assert.match(await page.locator(".references").innerText(), /Bergen, two days/u);
      assert.equal(await page.locator(".references a[href^='javascript']").count(), 0);
      await page.getByRole("button", { name: "Is it dry in the morning?" }).click();
      assert.equal(await page.getByLabel("Request").inputValue(), "Is it dry in the morning?");
      await picture(page, "agent-answered");

      await page.keyboard.press("Enter");
      await page.locator(".call", { hasText: "getHourlyForecast" }).waitFor();
      await page.getByLabel("Request").fill("typed meanwhile");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("second line");
      await page.keyboard.press("Escape");
      await ended(page, "Stopped", 1);
      assert.equal(await page.getByLabel("Request").inputValue(), "typed meanwhile\nsecond line");
      await close(page);
    });
  },

  async "earlier conversations are opened, continued and deleted"({ browser }) {
    await within([...answers("The first answer."), ...answers("Of a draft."), ...answers("The second answer.")], [], async (server) => {
      const page = await open(browser, server, { hash: "#/agent" });
      await send(page, "first question");
      await ended(page, "Answered");
      await page.getByRole("link", { name: /first question/u }).waitFor();
      const address = page.url();
      assert.match(address, /conversation=/u);
      await page.getByRole("link", { name: "New conversation" }).click();
      await page.getByText("Ask, and watch the tools").waitFor();
      await page.getByLabel("Request").fill("a draft");
      await page.getByRole("link", { name: /first question/u }).click();
      await page.locator(".prose", { hasText: "The first answer." }).waitFor();
      assert.equal(await page.getByLabel("Request").inputValue(), "");
      await page.getByRole("link", { name: "New conversation" }).click();
      await page.getByText("Ask, and watch the tools").waitFor();
      assert.equal(await page.getByLabel("Request").inputValue(), "a draft", "a draft is kept");
      await page.keyboard.press("Enter");
      await page.locator(".prose", { hasText: "Of a draft." }).waitFor();
      await ended(page, "Answered");
      await page.getByRole("link", { name: "New conversation" }).click();
      await page.getByText("Ask, and watch the tools").waitFor();
      await page.getByRole("link", { name: "Catalog" }).click();
      await page.getByRole("option").first().waitFor();

      const other = await open(browser, server, { hash: new URL(address).hash });
      await other.locator(".prose", { hasText: "The first answer." }).waitFor();
      await send(other, "second question");
      await ended(other, "Answered", 1);
      assert.equal(await other.locator(".turn").count(), 2);
      await other.getByRole("button", { name: "Delete" }).click();
      await other.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
      await other.getByRole("link", { name: /first question/u }).waitFor({ state: "detached" });
      await other.getByText("Ask, and watch the tools").waitFor();
      await close(other);
      await close(page);
    });
  },

  async "a page that is loaded again shows what waits, and the steps of earlier turns"({ browser }) {
    await within(RAIN, ["--recommend", "--tool-budget", "1100"], async (server) => {
      const page = await open(browser, server, { hash: "#/agent", width: 1140, height: 900 });
      await send(page, QUESTION);
      await page.locator(".approval").waitFor();
      const stated = await page.locator(".toolbox-body").innerText();
      await page.reload();
      const asked = page.locator(".call", { has: page.locator(".approval") });
      await asked.waitFor();
      assert.match(await asked.innerText(), /changes something[\s\S]*rule[\s\S]*anna@example\.com[\s\S]*[0-5]:\d\d left/u);
      await page.getByText("goes on at the server").waitFor();
      await page.getByRole("button", { name: "Approve" }).click();
      await page.locator(".call", { hasText: "ben@example.com" }).locator(".approval").waitFor();
      await page.getByLabel("Reason of a refusal").fill("Ben is away");
      // What is typed stays while the turn is looked at.
      await page.waitForTimeout(2500);
      assert.equal(await page.getByLabel("Reason of a refusal").inputValue(), "Ben is away");
      await picture(page, "agent-again");
      await page.getByRole("button", { name: "Refuse" }).click();
      await ended(page, "Answered");

      await page.reload();
      await ended(page, "Answered");
      const turn = page.locator(".turn");
      assert.match(await turn.innerText(), /Searched weather forecast[\s\S]*Injected[\s\S]*I look at the forecast\.[\s\S]*weather__getForecast[\s\S]*only reads[\s\S]*allowed[\s\S]*rule[\s\S]*number was given as text[\s\S]*Evicted[\s\S]*approved by[\s\S]*refused by[\s\S]*reason: Ben is away[\s\S]*It will rain/u);
      assert.equal((await turn.innerText()).split("It will rain, about").length, 2, "the answer is shown once");
      const tokens = (text) => text.match(/[\d,]+ of 1,100 tokens/u)[0];
      assert.equal(tokens(await page.locator(".toolbox-body").innerText()), tokens(stated));
      await picture(page, "agent-earlier");
      assert.deepEqual((await barriers(page)).serious, []);
      await close(page);
    });
  },

  async "a server for which no model was chosen says so before anything is typed"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    const page = await open(browser, server, { hash: "#/agent" });
    await page.locator(".advice", { hasText: "No model was chosen" }).waitFor();
    await page.getByText("Ask, and watch the tools").waitFor();
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "agent-no-model");
    await close(page);
    await server.end();
  },

  async "a run goes on while another screen is looked at"({ browser }) {
    await within([...HANGS, ...answers("Later.")], [], async (server) => {
      const page = await open(browser, server, { hash: "#/agent" });
      await send(page, "hours");
      await page.locator(".call", { hasText: "running" }).waitFor();
      await page.getByRole("link", { name: "Search", exact: true }).click();
      await page.locator("#query").waitFor();
      await page.getByRole("link", { name: "Agent" }).click();
      await page.locator(".call", { hasText: "running" }).waitFor();
      const second = await open(browser, server, { hash: new URL(page.url()).hash });
      await second.getByText("goes on at the server").waitFor();
      await second.locator(".call", { hasText: "running" }).waitFor();
      await second.getByRole("button", { name: "Stop" }).click();
      await ended(page, "Stopped");
      await second.locator(".turn-foot", { hasText: "Stopped" }).waitFor();
      await close(second);
      await close(page);
    });
  },

  async "a plan is a graph, and its steps are followed"({ browser }) {
    await within([{ reply: { text: JSON.stringify(PLANNED) } }, ...answers("Sent."), { tool: "weather/getForecast", result: FORECAST }, { tool: "gmail/send_email", result: "sent" }], ["--mode", "plan"], async (server) => {
      const page = await open(browser, server, { hash: "#/agent" });
      await send(page, "send the weather forecast of Bergen and Oslo by email");
      await page.locator(".node[data-state=asks]").waitFor();
      assert.equal(await page.locator(".node[data-state=ok]").count(), 2);
      assert.equal(await page.locator(".edge").count(), 2);
      await page.locator(".plan").scrollIntoViewIfNeeded();
      await picture(page, "agent-plan");
      assert.deepEqual((await barriers(page)).serious, []);
      await page.getByRole("button", { name: "Approve" }).click();
      await ended(page, "Answered");
      await page.getByText("3 of 3 steps done").waitFor();
      await close(page);
    });
  },

  async "Markdown of a model is drawn, without pictures of others and with the addresses of links"({ browser }) {
    const text = "## Two days\n\nRain **today**, `8 mm`. See [the forecast](https://weather.example/bergen).\n\n- an umbrella\n- boots\n  1. high ones\n\n| day | rain |\n|---|---:|\n| Monday | 8 mm |\n\n> Stay in.\n\n![map](http://192.0.2.1/map.png) [run](javascript:window.hostileRan=true) <b>no HTML</b>";
    await within([{ reply: { text } }], [], async (server) => {
      const page = await open(browser, server, { hash: "#/agent" });
      await send(page, "What about the weather?");
      await ended(page, "Answered");
      const prose = page.locator(".parts > .prose");
      assert.equal(await prose.getByRole("heading", { name: "Two days" }).count(), 1);
      assert.deepEqual(await prose.locator("strong, code").allTextContents(), ["today", "8 mm"]);
      assert.equal(await prose.locator("ul > li").count(), 2);
      assert.equal(await prose.locator("ul ol > li").innerText(), "high ones");
      assert.deepEqual(await prose.locator("th, td").allTextContents(), ["day", "rain", "Monday", "8 mm"]);
      assert.equal(await prose.locator("blockquote").innerText(), "Stay in.");
      assert.deepEqual(await prose.locator("a").evaluateAll((links) => links.map((link) => [link.textContent, link.href, link.rel])), [["the forecast", "https://weather.example/bergen", "noopener noreferrer"]]);
      assert.match(await prose.innerText(), /the forecast \(https:\/\/weather\.example\/bergen\)[\s\S]*picture map at http:\/\/192\.0\.2\.1\/map\.png \[run\]\(javascript:[\s\S]*<b>no HTML<\/b>/u);
      assert.equal(await prose.locator("img").count(), 0);
      assert.deepEqual((await barriers(page)).serious, []);
      await picture(page, "agent-markdown");
      await page.setViewportSize({ width: 390, height: 800 });
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
      await picture(page, "phone-agent-markdown");
      await close(page);
    });
  },

  async "what models and tools write runs nothing"({ browser }) {
    const lines = [
      { reply: { thinking: HOSTILE, text: HOSTILE, calls: [{ name: "tool_search", arguments: { query: "select:weather/getForecast" } }] } },
      { reply: { calls: [{ name: "weather__getForecast", arguments: { place: HOSTILE, __proto__: { [HOSTILE]: 1 } } }, { name: `x${HOSTILE}`, arguments: {} }] } },
      { reply: { text: `${HOSTILE}\n\`\`\`\n${HOSTILE}\n\`\`\`` } },
      { for: "recommend", reply: { text: JSON.stringify([`1 ${HOSTILE}`, `2 ${HOSTILE}`, `3 ${HOSTILE}`]) } },
      { tool: "weather/getForecast", result: { ...FORECAST, text: HOSTILE } },
    ];
    await within(lines, ["--recommend"], async (server) => {
      const page = await open(browser, server, { hash: "#/agent" });
      await send(page, HOSTILE);
      await ended(page, "Answered");
      await page.evaluate(() => document.querySelectorAll("summary").forEach((summary) => summary.click()));
      await page.waitForTimeout(300);
      const text = await page.locator(".turns").evaluate((turns) => turns.textContent);
      assert.ok(text.includes(`<script>${RUN}</script>`), "markup is shown as it is");
      for (const unseen of ["\u202E", "\u200B"]) assert.ok(!text.includes(unseen), `U+${unseen.codePointAt(0).toString(16)} is not written out`);
      await page.reload();
      await page.locator(".parts > .prose").first().waitFor();
      await page.evaluate(() => document.querySelectorAll("summary").forEach((summary) => summary.click()));
      assert.ok((await page.locator(".call").first().innerText()).includes(`<script>${RUN}</script>`), "what is kept is shown as it is, too");
      await picture(page, "agent-hostile");
      await close(page);
    });
  },

  async "an answer that breaks off is said so, and can be asked for again"({ browser }) {
    const server = await scripted(HANGS, []);
    const page = await open(browser, server, { hash: "#/agent", expected: /ERR_|Failed to load/u });
    await send(page, "hours");
    await page.locator(".call", { hasText: "running" }).waitFor();
    await page.getByLabel("Request").fill("typed meanwhile");
    await server.kill();
    await page.locator(".turn", { hasText: "broke off" }).waitFor();
    assert.match(await page.locator(".call").innerText(), /cut off/u);
    await page.locator("#connection", { hasText: "does not answer" }).waitFor();
    const again = await scripted(answers("Now it works."), [], server);
    await page.waitForFunction(() => document.getElementById("connection").textContent === "", undefined, { timeout: 30_000 });
    await page.getByRole("button", { name: "Ask again" }).click();
    await ended(page, "Answered", 1);
    assert.equal(await page.getByLabel("Request").inputValue(), "typed meanwhile");
    await close(page);
    await again.end();
  },

  async "a model that cannot be reached is said, and a refused request stays in the box"({ browser }) {
    await within([{ fail: "the model is away" }, ...answers("Back.")], [], async (server) => {
      const page = await open(browser, server, { hash: "#/agent", expected: /40[13]/u });
      await send(page, "hello");
      await page.locator(".turn .notice.error", { hasText: "the model is away" }).waitFor();
      await page.getByRole("link", { name: /^hello/u }).waitFor();
      await page.waitForLoadState("networkidle");
      const key = () => server.command("keys", "create", "--scope", "admin", "--catalogs", "*").trim();
      const token = key();
      await page.getByLabel("Request").fill("again");
      await page.keyboard.press("Enter");
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("API key").fill(token);
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await page.locator(".ask-notice .notice").waitFor();
      assert.equal(await page.getByLabel("Request").inputValue(), "again");
      await page.getByRole("button", { name: "Send it as a new conversation" }).click();
      await page.locator(".prose", { hasText: "Back." }).waitFor();
      await close(page);
    });
  },

  async "a server without an agent is said, with the way to start one"({ browser }) {
    await within(answers("Here."), [], async (server) => {
      const page = await open(browser, server, { expected: /503/u });
      await page.route("**/v1/agent/conversations*", (route) => route.fulfill({ status: 503, json: { error: { code: "agent_not_ready", message: "none" } } }));
      await page.getByRole("link", { name: "Agent" }).click();
      await page.getByText("toolscout serve --llm").waitFor();
      assert.deepEqual((await barriers(page)).serious, []);
      await page.unroute("**/v1/agent/conversations*");
      await page.getByRole("button", { name: "Look again" }).click();
      await send(page, "hello");
      await ended(page, "Answered");
      await close(page);
    });
  },

  async "a phone has room for the chat, and the toolbox folds"({ browser }) {
    await within([...RAIN], [], async (server) => {
      const page = await open(browser, server, { hash: "#/agent", width: 360, height: 760, dark: true });
      assert.equal(await page.locator(".toolbox").evaluate((box) => box.open), false);
      await page.getByLabel("Request").fill(QUESTION);
      await page.getByRole("button", { name: "Send" }).click();
      await page.locator(".approval").waitFor();
      await picture(page, "phone-agent");
      await page.locator(".toolbox summary").click();
      await page.locator(".toolbox", { hasText: "gmail/send_email" }).waitFor();
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window, `it is ${content} wide`);
      assert.deepEqual((await barriers(page)).serious, []);
      await close(page);
    });
  },
};
