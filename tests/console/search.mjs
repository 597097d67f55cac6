/** Screen Search. */

import assert from "node:assert/strict";
import { barriers, close, drop, open, picture } from "./browser.mjs";

const REQUEST = "find flihgts to Oslo and email the itinerary to Ada";

export const search = {
  async "a request is answered as it is typed, and each hit says why"({ browser, server }) {
    const page = await open(browser, server);
    await page.locator("#query").pressSequentially(REQUEST, { delay: 15 });
    await page.locator(".hit").first().waitFor();
    await page.locator(".understood", { hasText: "itinerary to Ada" }).waitFor();
    await page.locator(".answer:not([aria-busy])").waitFor();
    assert.match(await page.locator(".understood").innerText(), /corrected[\s\S]*added[\s\S]*need 1[\s\S]*need 2/u);
    assert.ok((await page.locator(".hit mark").count()) > 0, "matched words are marked");
    for (const name of ["words", "table", "encoder", "ranker"]) {
      assert.ok(await page.locator(".hit").first().locator(".signals", { hasText: name }).count(), name);
    }
    assert.match(await page.locator(".summary").innerText(), /10 hits[\s\S]*confidence[\s\S]*hybrid[\s\S]*ms/u);
    await page.locator(".timings summary").click();
    assert.match(await page.locator(".timings ul").innerText(), /words[\s\S]*meaning[\s\S]*rank/u);
    await page.locator(".why summary").first().click();
    await page.locator(".why-body").first().getByText("what the ranker saw").waitFor();
    assert.match(await page.locator(".why-body").first().innerText(), /tool-encoder/u);
    await picture(page, "search");
    await close(page);
  },

  async "a file that is dropped is added to an empty catalog, and found"({ browser, server }) {
    await server.post("catalogs", { name: "dropped" });
    const page = await open(browser, server, { hash: "#/search?c=dropped" });
    await page.getByRole("heading", { name: "This catalog is empty" }).waitFor();
    await drop(page, "#main", "scales.json", JSON.stringify([{ name: "weigh_parcel", description: "Weighs a parcel." }]));
    await page.getByRole("dialog").getByRole("button", { name: "Add tools" }).click();
    await page.locator(".load", { hasText: "1 added" }).waitFor();
    await page.locator("#query").fill("how heavy is my parcel");
    await page.locator(".hit", { hasText: "weigh_parcel" }).waitFor();
    await close(page);
  },

  async "filters and modes are obeyed and stand in the address, which brings another person there"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search?q=create+an+issue" });
    await page.locator(".hit").first().waitFor();
    await page.getByLabel("Server").selectOption("github");
    await page.getByLabel("Mode").selectOption("lexical");
    await page.getByLabel("Class").selectOption("changes");
    await page.locator(".summary", { hasText: "lexical" }).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll(".hit .server")].every((server) => server.textContent === "github"));
    const shown = await page.locator(".hit").evaluateAll((hits) => hits.map((hit) => hit.dataset.id));
    assert.ok(shown.includes("github/create_issue"), String(shown));
    const other = await open(browser, server, { hash: new URL(page.url()).hash });
    await other.locator(".hit").first().waitFor();
    assert.deepEqual(await other.locator(".hit").evaluateAll((hits) => hits.map((hit) => hit.dataset.id)), shown);
    await close(other);
    await close(page);
  },

  async "two settings are compared, with what moved"({ browser, server }) {
    const page = await open(browser, server, { hash: `#/search?q=${encodeURIComponent("open a ticket about a bug")}` });
    await page.locator(".hit").first().waitFor();
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator(".column").nth(1).locator(".hit .move").first().waitFor();
    assert.match(await page.locator(".column").nth(1).locator(".summary").innerText(), /lexical/u);
    assert.ok((await page.locator(".move.up, .move.down, .move.new").count()) > 0, "something moved");
    await picture(page, "compare");
    await page.getByRole("button", { name: "Stop comparing" }).click();
    assert.equal(await page.locator(".column").count(), 1);
    await close(page);
  },

  async "the answer is given in every format with its tokens, and copied"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search?q=will+it+rain&k=3&format=openai" });
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    const panel = page.locator(".export");
    await panel.locator("b", { hasText: "token" }).waitFor();
    const formats = await panel.locator("option").evaluateAll((options) => options.map(({ value }) => value));
    assert.equal(formats.length, 7);
    // The first is chosen already; it comes last.
    for (const format of [...formats.slice(1), formats[0], "names"]) {
      const [answer] = await Promise.all([
        page.waitForResponse((response) => response.request().postData()?.includes(`"format":"${format}"`)),
        panel.locator("select").selectOption(format),
      ]);
      assert.equal(answer.status(), 200, format);
    }
    await panel.locator("pre", { hasText: "weather__getForecast" }).waitFor();
    await panel.getByRole("button", { name: "Copy" }).click();
    await panel.getByRole("button", { name: "Copied" }).waitFor();
    const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.equal(copied.length, 3);
    await close(page);
  },

  async "a right hit is reported, and the page says whether it is remembered"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search?q=will+it+rain" });
    await page.getByRole("button", { name: "This was right" }).first().click();
    await page.locator(".done", { hasText: "the memory of this catalog is off" }).waitFor();
    await fetch(`${server.url}/v1/catalogs/default/memory`, { method: "PUT", headers: { "Content-Type": "application/json" }, body: '{"enabled":true}' });
    await page.getByRole("button", { name: "This was right" }).first().click();
    await page.locator(".done", { hasText: "Recorded and remembered" }).waitFor();
    await page.getByRole("button", { name: "Forget" }).click();
    await page.locator(".done", { hasText: "Forgotten: 1 entry" }).waitFor();
    await fetch(`${server.url}/v1/catalogs/default/memory`, { method: "DELETE" });
    await fetch(`${server.url}/v1/catalogs/default/memory`, { method: "PUT", headers: { "Content-Type": "application/json" }, body: '{"enabled":false}' });
    await close(page);
  },

  async "the owner of a catalog changes what a request finds, and undoes it"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search?q=open+an+issue+on+github" });
    const first = page.locator(".hit").first();
    await first.locator(".name", { hasText: "create_issue" }).waitFor();
    const second = await page.locator(".hit .name").nth(1).innerText();
    const change = async (choice) => {
      await page.locator(".hit", { hasText: second }).first().getByRole("button", { name: "Change" }).click();
      await page.getByRole("dialog").getByLabel(choice).check();
      await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    };
    await change("Put it first for this request");
    await first.locator(".name", { hasText: second }).waitFor();
    await page.getByText(`${second} is first for this request.`).waitFor();
    await picture(page, "search-pinned");
    await page.getByRole("button", { name: "Undo" }).click();
    await first.locator(".name", { hasText: "create_issue" }).waitFor();
    await change("Put it first for this request");
    await page.getByText(`${second} is first for this request.`).waitFor();
    await change("Hide it for this request");
    await page.waitForFunction((name) => ![...document.querySelectorAll(".hit .name")].some((one) => one.textContent === name), second);
    await page.getByRole("button", { name: "Undo" }).click();
    await page.locator(".hit", { hasText: "pinned to 1" }).locator(".name", { hasText: second }).waitFor();
    await page.locator(".hit", { hasText: second }).first().getByRole("button", { name: "Change" }).click();
    await page.getByRole("dialog").getByLabel("Give it another name").check();
    assert.deepEqual((await barriers(page)).serious, []);
    await page.getByRole("dialog").getByLabel("The other name").fill("where is that ticket");
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByText(`${second} has another name.`).waitFor();
    await page.locator("#query").fill("where is that ticket");
    await first.locator(".name", { hasText: second }).waitFor();
    await fetch(`${server.url}/v1/catalogs/default/words`, { method: "PUT", headers: { "Content-Type": "application/json" }, body: "{}" });
    await close(page);
  },

  async "the way back leads to the place and the reasons that were open"({ browser, server }) {
    const page = await open(browser, server, { height: 500, hash: "#/search?q=send+an+email&k=30" });
    const hit = page.locator(".hit").nth(15);
    await hit.locator("summary").click();
    await page.waitForFunction(() => history.state?.opened?.length === 1 && history.state?.top === scrollY && scrollY > 0);
    const top = await page.evaluate(() => scrollY);
    await hit.locator(".name").click();
    await page.locator(".detail h2").waitFor();
    await page.goBack();
    await page.waitForFunction((y) => Math.abs(scrollY - y) < 2, top);
    assert.ok(await hit.locator(".why").evaluate((why) => why.open));
    await close(page);
  },

  async "no match and a refused request are said, and nothing typed is lost"({ browser, server }) {
    const page = await open(browser, server, { expected: /422/u });
    await page.getByRole("button", { name: "createIssue" }).click();
    await page.locator(".hit").first().waitFor();
    await page.getByLabel("Tag").fill("no-such-tag");
    await page.getByRole("heading", { name: "No tool matches" }).waitFor();
    await page.getByLabel("Tag").fill("");
    await page.getByLabel("Hits").fill("99");
    await page.locator(".notice.error", { hasText: "50" }).waitFor();
    await page.getByLabel("Hits").fill("3");
    await page.locator(".summary", { hasText: "3 hits" }).waitFor();
    assert.equal(await page.locator("#query").inputValue(), "createIssue");
    await close(page);
  },

  async "hits of a request that no tool serves are shown as the nearest ones"({ browser, server }) {
    const page = await open(browser, server);
    // Which requests get this answer depends on the models; the page depends on the answer alone.
    await page.route("**/search", async (route) => {
      const response = await route.fetch();
      const answer = await response.json();
      const isForNone = route.request().postData().includes("scarf");
      await route.fulfill({ response, json: isForNone ? { ...answer, match: "none", advice: "No tool fits.", unmatched: ["scarf"] } : answer });
    });
    await page.locator("#query").fill("knit me a scarf");
    await page.getByRole("heading", { name: "No tool fits this request" }).waitFor();
    assert.match(await page.locator(".nothing-fits").innerText(), /No tool has anything for: scarf/u);
    await page.locator(".hits.unfit .hit").first().waitFor();
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "nothing-fits");
    await page.locator("#query").fill("send an email");
    await page.locator(".hits:not(.unfit) .hit").first().waitFor();
    await page.getByRole("heading", { name: "No tool fits this request" }).waitFor({ state: "detached" });
    await close(page);
  },

  async "answers to earlier letters never replace a later one"({ browser, server }) {
    const page = await open(browser, server);
    let held;
    await page.route("**/search", async (route) => {
      if (route.request().postData().includes('"send"')) {
        held = route;
        return;
      }
      await route.continue();
    });
    await page.locator("#query").fill("send");
    await page.waitForTimeout(400);
    await page.locator("#query").fill("createIssue");
    await page.locator(".hit .badge", { hasText: "name:" }).first().waitFor();
    await held?.continue().catch(() => {});
    await page.waitForTimeout(300);
    assert.ok((await page.locator(".hit .badge", { hasText: "name:" }).count()) > 0);
    await close(page);
  },

  async "no serious barrier, in light and dark, alone and compared"({ browser, server }) {
    for (const dark of [false, true]) {
      for (const more of ["", "&compare=1&format=openai&ranker=no"]) {
        const page = await open(browser, server, { dark, hash: `#/search?q=${encodeURIComponent(REQUEST)}&k=4${more}` });
        await page.locator(".hit").first().waitFor();
        if (more) await page.locator(".export pre").waitFor();
        await page.locator(".why summary").first().click();
        const { serious } = await barriers(page);
        assert.deepEqual(serious, []);
        await close(page);
      }
    }
  },
};
