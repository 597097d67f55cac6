/** Screen Evaluate. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { barriers, close, drop, open, picture } from "./browser.mjs";
import { HOSTILE } from "./hostile.mjs";

const QUERIES = [
  { id: "issue", query: "open a new issue in a repository", relevant: ["github/create_issue"] },
  { id: "warm", query: "how warm will it get tomorrow", relevant: ["weather/getForecast", "weather/getHourlyForecast"] },
  { id: "hard", query: "the thing with the stuff from before", relevant: ["github/create_issue"] },
  { id: "scarf", query: "knit me a scarf", relevant: [], kind: "none" },
];
/** Of the bundled set: enough for intervals that say something. */
const BUNDLED = readFileSync(join(process.env.TOOLSCOUT_FIXTURES, "../queries.jsonl"), "utf8").split("\n").slice(0, 60);
const lines = (queries) => queries.map((query) => JSON.stringify(query)).join("\n");

/** A catalog of its own, so that what others check is not in its list. */
async function ownCatalog(server, name) {
  const { tools } = await server.get("catalogs/default/tools?limit=1000");
  await server.post("catalogs", { name });
  await server.post(`catalogs/${name}/tools`, tools);
  await server.embedded(name);
}

async function run(page, text) {
  await page.getByLabel("Queries", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.locator(".evaluation .query-row").first().waitFor();
}

/** What a button saves as a file. */
async function saved(page, name) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
  return readFileSync(await download.path(), "utf8");
}

export const evaluate = {
  async "queries are judged, the worst come first and lead to the search, and the next time is compared"({ browser, server }) {
    await ownCatalog(server, "judged");
    const page = await open(browser, server, { hash: "#/evaluate?c=judged", height: 1000 });
    await page.getByLabel("Name").fill("before");
    await run(page, [...BUNDLED, lines(QUERIES)].join("\n"));
    assert.match(await page.locator(".evaluation .tiles").innerText(), /queries\s*64[\s\S]*judged\s*63[\s\S]*that no tool fits\s*1/u);
    assert.match(await page.locator(".figures .main").first().innerText(), /nDCG@10[\s\S]*\d to \d/u);
    await page.getByText("There is no earlier evaluation").waitFor();
    const { sets: [report] } = JSON.parse(await saved(page, "Report as JSON"));
    assert.equal(report.set, "judged");
    assert.equal(report.queries, 63);
    assert.match(await saved(page, "Report as page"), /<!doctype html>[\s\S]*Precision over recall/u);
    const scores = await page.locator(".query-score b").allInnerTexts();
    assert.equal(scores.length, 63);
    assert.deepEqual(scores.map(Number), scores.map(Number).sort((a, b) => a - b));
    assert.match(await page.locator(".query-row", { hasText: "hard" }).innerText(), /the thing with the stuff[\s\S]*Expected[\s\S]*github\/create_issue/u);

    await server.post("catalogs/judged/tools", [{ server: "rival", name: "open_issue", description: "Opens a new issue in a repository." }]);
    await server.embedded("judged");
    await page.reload();
    await page.getByText("The catalog was changed since").waitFor();
    await page.getByRole("button", { name: "Run again" }).click();
    await page.getByLabel("Name").fill("with a rival");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator(".changes-said", { hasText: /Against before: \d+ better, \d+ worse/u }).waitFor();
    assert.match(await page.locator(".figures .main").first().innerText(), /p [=<]/u);
    await page.getByLabel("Changed only").check();
    await page.waitForFunction(() => location.hash.includes("changed=1"));
    await page.getByLabel("Order").selectOption("change");
    await page.locator(".query-row", { hasText: "Before" }).filter({ hasText: "rival/open_issue" }).first().waitFor();
    await picture(page, "evaluate");
    const below = await page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
    assert.equal(below, 0, "the screen scrolls within its parts");
    const link = page.locator(".query-row", { hasText: QUERIES[0].query }).locator(".query-text");
    await link.click();
    await page.locator(".hit", { hasText: "open_issue" }).first().waitFor();
    assert.equal(await page.locator("#query").inputValue(), QUERIES[0].query);
    await page.goBack();
    await page.locator(".query-row").first().waitFor();
    assert.ok(await page.getByLabel("Changed only").isChecked(), "the address brings one back");
    assert.equal(await page.locator(".evaluate .side-panel li a").count(), 2);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "New evaluation" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".evaluate .side-panel li a").length === 1);
    await close(page);
  },

  async "a report that is dropped is kept as sent, and compared with the server's own"({ browser, server }) {
    await ownCatalog(server, "sent");
    const page = await open(browser, server, { hash: "#/evaluate?c=sent", height: 1000, expected: /422/u });
    await page.getByLabel("Name").fill("mine");
    await run(page, BUNDLED.join("\n"));
    const report = JSON.parse(await saved(page, "Report as JSON"));
    // Another engine found nothing for the first query.
    const [set] = report.sets;
    const [{ arms: { "in use": first } }] = set.per_query;
    for (const [metric, value] of Object.entries(first.values)) {
      set.arms["in use"][metric] -= (value ?? 0) / set.queries;
      first.values[metric] = 0;
    }
    Object.assign(first, { hits: [], ranks: {} });
    await page.getByRole("link", { name: "New evaluation" }).click();
    await drop(page, ".evaluation-form", "other.json", JSON.stringify(report));
    await page.getByText("a report of sent, sent by http").waitFor();
    await page.locator(".changes-said", { hasText: "Against mine: 0 better, 1 worse" }).waitFor();
    assert.match(await page.locator(".side-panel li a[aria-current]").innerText(), /sent/u);
    assert.match(await page.locator(".figures .main").first().innerText(), /nDCG@10[\s\S]*p [=<]/u);
    await page.getByLabel("Changed only").check();
    await page.waitForFunction(() => document.querySelectorAll(".query-row").length === 1);
    await picture(page, "evaluate-sent");
    await page.getByRole("button", { name: "Run here" }).click();
    assert.equal((await page.getByLabel("Queries", { exact: true }).inputValue()).split("\n").length, 60);
    set.arms["in use"]["ndcg@10"] = 1;
    await drop(page, ".evaluation-form", "wrong.json", JSON.stringify(report));
    await page.locator(".notice.error", { hasText: "the mean of its queries" }).waitFor();
    await close(page);
  },

  async "a person judges by keys alone, takes back, goes on later, and is compared with another judge"({ browser, server }) {
    await ownCatalog(server, "hands");
    const page = await open(browser, server, { hash: "#/evaluate?c=hands", height: 1000 });
    await page.getByLabel("Name").fill("by hand");
    await page.getByLabel("Queries", { exact: true }).fill(lines(QUERIES));
    await page.getByRole("button", { name: "Judge by hand" }).focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Your name").waitFor();
    await page.keyboard.type("Ann");
    await page.keyboard.press("Enter");
    await page.locator(".judge-query", { hasText: QUERIES[0].query }).waitFor();
    const tools = await page.locator(".judge-tool").count();
    assert.ok(tools >= 5, `${tools} tools`);
    const current = () => page.locator(".judge-tool[aria-current] b").innerText();
    const names = await page.locator(".judge-tool b").allInnerTexts();
    assert.deepEqual(names, [...names].sort(), "the order tells nothing");
    await page.keyboard.press("3");
    assert.equal(await current(), names[1]);
    await page.keyboard.press("u");
    await page.waitForFunction((name) => document.querySelector(".judge-tool[aria-current] b")?.textContent === name, names[0]);
    assert.equal(await page.locator(".grade[aria-pressed=true]").count(), 0);
    await page.keyboard.press("ArrowDown");
    assert.equal(await current(), names[1]);
    await page.keyboard.press("2");
    await picture(page, "judge");
    for (let left = 1; left < tools; left += 1) await page.keyboard.press("1");
    await page.locator(".judge-query", { hasText: QUERIES[1].query }).waitFor();
    await page.keyboard.press("n");
    await page.locator(".judge-query", { hasText: QUERIES[2].query }).waitFor();
    await page.keyboard.press("s");
    await page.locator(".judge-query", { hasText: QUERIES[3].query }).waitFor();
    await page.locator(".judge-progress", { hasText: "2 of 4 judged, 1 skipped" }).waitFor();
    await page.keyboard.press("u");
    await page.locator(".judge-query", { hasText: QUERIES[2].query }).waitFor();
    await page.keyboard.press("s");
    await page.locator(".judge-query", { hasText: QUERIES[3].query }).waitFor();

    await page.goto(`${server.url}/#/evaluate?c=hands`);
    await page.locator(".side-panel", { hasText: "3 of 4 queries" }).getByRole("link", { name: /by hand/u }).click();
    await page.locator(".judge-query", { hasText: QUERIES[3].query }).waitFor();
    await page.keyboard.press("n");
    await page.getByText("Nothing is left to judge").waitFor();
    await page.keyboard.press("u");
    await page.locator(".judge-query", { hasText: QUERIES[3].query }).waitFor();
    await page.keyboard.press("n");
    await page.getByText("Nothing is left to judge").waitFor();

    const exported = (await saved(page, "Export Ann")).trim().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(exported.map(({ id, judge }) => [id, judge]), [["issue", "Ann"], ["warm", "Ann"], ["scarf", "Ann"]]);
    const other = exported.map((line) => ({ ...line, judge: "model m", relevant: Object.fromEntries(Object.keys(line.relevant).map((id, index) => [id, index === 0 ? 3 : line.relevant[id]])) }));
    await page.getByLabel("File of judgements").setInputFiles({ name: "m.jsonl", mimeType: "application/jsonl", buffer: Buffer.from(other.map((line) => JSON.stringify(line)).join("\n")) });
    await page.getByLabel("Agreement with").selectOption("model m");
    await page.locator(".judging", { hasText: /Grades\s*\d+\.\d%\s*\d*\.\d{3}[\s\S]*Where they differ most/u }).waitFor();
    await picture(page, "judge-agreement");
    const { serious } = await barriers(page);
    assert.deepEqual(serious, []);
    await close(page);
    for (const [name, options] of [["judge-dark", { dark: true, height: 1000 }], ["phone-judge", { width: 400, height: 860 }]]) {
      const again = await open(browser, server, { hash: "#/evaluate?c=hands", ...options });
      await again.getByRole("link", { name: /by hand/u }).click();
      await again.getByLabel("Your name").fill("Bob");
      await again.getByRole("button", { name: "Begin" }).click();
      await again.locator(".judge-tool").first().waitFor();
      const [content, window] = await again.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window);
      assert.deepEqual((await barriers(again)).serious, []);
      await again.locator(".judge-query").scrollIntoViewIfNeeded();
      await picture(again, name);
      await close(again);
    }
  },

  async "two settings are compared, under a filter that the link keeps"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/evaluate?c=default" });
    await page.getByLabel("Queries", { exact: true }).fill(lines(QUERIES));
    await page.getByRole("button", { name: "Compare settings" }).click();
    await page.locator("#B-server").selectOption("github");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator(".changes-said", { hasText: "B against A" }).waitFor();
    await page.locator(".figures th", { hasText: "B − A" }).first().waitFor();
    assert.match(await page.locator(".arms").innerText(), /A[\s\S]*B[\s\S]*lexical, server github/u);
    await page.getByLabel("Settings").selectOption("b-a");
    await page.locator(".query-row", { hasText: "Before" }).first().waitFor();
    await picture(page, "evaluate-arms");
    const href = await page.locator(".query-text").first().getAttribute("href");
    assert.match(href, /compare=1.*b\.server=github/u);
    await close(page);
  },

  async "a mistake is named and its line is marked; a dropped file and queries without judgement work"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/evaluate?c=default", expected: /422/u });
    await page.getByLabel("Queries", { exact: true }).fill("will it rain\nopen an issue\tgithub/create_isue\n");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator(".notice.error", { hasText: /line 2 of the queries[\s\S]*github\/create_isue/u }).waitFor();
    const marked = await page.evaluate(() => { const box = document.activeElement; return box.value.slice(box.selectionStart, box.selectionEnd); });
    assert.equal(marked, "open an issue\tgithub/create_isue");
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator("#query").waitFor();
    await page.getByRole("link", { name: "Evaluate" }).click();
    assert.match(await page.getByLabel("Queries", { exact: true }).inputValue(), /create_isue/u, "what was typed is kept");
    await drop(page, ".evaluation-form", "queries.txt", "will it rain tomorrow\nsend an email\n");
    await page.locator("#queries-count", { hasText: "2 lines" }).waitFor();
    await drop(page, ".evaluation-form", "qrels.txt", "none 0 github/create_issue 1\n");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText("so there are no figures").waitFor();
    await page.getByRole("button", { name: "Run again" }).click();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator(".changes-said", { hasText: "100.0% of the first ten are in both" }).waitFor();
    await close(page);
  },

  async "progress is shown, another screen may be looked at, and it can be cancelled"({ browser, large }) {
    const page = await open(browser, large, { hash: "#/evaluate" });
    const text = Array.from({ length: 5000 }, (_, index) => `thing number ${index}`).join("\n");
    await page.getByLabel("Queries", { exact: true }).evaluate((box, pasted) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", pasted);
      box.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }, text);
    await page.locator("#queries-count", { hasText: "5,000 lines" }).waitFor();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator(".load", { hasText: /of 5,000 searches/u }).waitFor();
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator("#query").fill("thing number 7");
    await page.locator(".hit").first().waitFor();
    await page.getByRole("link", { name: "Evaluate" }).click();
    await page.locator(".load progress").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.locator(".load", { hasText: "Cancelled" }).waitFor();
    assert.ok(await page.getByRole("button", { name: "Run", exact: true }).isEnabled());
    await close(page);
  },

  async "hostile queries and tools are text, on a phone and by axe too"({ browser, server }) {
    const text = HOSTILE.slice(0, 8).map(({ description }) => JSON.stringify({ query: description.slice(0, 8000) || "x", relevant: ["long/long"] })).join("\n");
    const page = await open(browser, server, { hash: "#/evaluate?c=hostile", width: 360, height: 760 });
    await page.getByLabel("Name").fill("<img src=x onerror=alert(1)>");
    await run(page, text);
    assert.ok((await page.locator(".unseen").count()) > 0);
    const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.equal(content, window);
    await picture(page, "phone-evaluate");
    const { hash } = new URL(page.url());
    await close(page);
    for (const dark of [false, true]) {
      for (const place of ["#/evaluate?c=default", hash]) {
        const other = await open(browser, server, { dark, hash: place });
        await other.locator(place === hash ? ".query-row" : "#queries").first().waitFor();
        const { serious } = await barriers(other);
        assert.deepEqual(serious, []);
        await close(other);
      }
    }
  },
};
