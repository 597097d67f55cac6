/** What all screens share: keys, the connection, keyboard, phone, colours, hostile tools, and size. */

import assert from "node:assert/strict";
import { barriers, close, open, picture } from "./browser.mjs";
import { HOSTILE } from "./hostile.mjs";
import { Server } from "./server.mjs";

/** On the wire, for all screens together. */
const MOST_BYTES = 250_000;
/** Uncompressed, for what the first screen loads. */
const MOST_FIRST_BYTES = 100_000;

export const shell = {
  async "the keyboard alone is enough"({ browser, server }) {
    const page = await open(browser, server);
    await page.locator("#query").waitFor();
    await page.keyboard.press("Tab");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("/");
    // Hits of a part of the query would be replaced, and the focus with them.
    const answered = page.waitForResponse((response) => (response.request().postData() ?? "").includes('"create an issue"'));
    await page.keyboard.type("create an issue");
    await answered;
    await page.locator(".hit").first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.ok(await page.locator(".hit").nth(1).locator(".why").evaluate((why) => why.open));
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "the focus is seen");
    await page.evaluate(() => document.activeElement.blur());
    await tabTo(page, (element) => element.textContent === "Catalog");
    await page.keyboard.press("Enter");
    await page.getByRole("option").first().waitFor();
    await tabTo(page, (element) => element.getAttribute("role") === "listbox");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.locator(".detail h2", { hasText: "create-project" }).waitFor();
    await tabTo(page, (element) => element.getAttribute("aria-label") === "Close the tool");
    await page.keyboard.press("Enter");
    await page.getByText("Choose a tool").waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "listbox");
    await close(page);
  },

  async "a phone shows every screen without scrolling sideways"({ browser, server }) {
    for (const hash of ["#/search?q=send+an+email&compare=1&format=openai", "#/catalog?c=default", "#/catalog?c=default&tool=github%2Fcreate_issue", "#/search?c=hostile&q=parcel&k=20"]) {
      const page = await open(browser, server, { width: 360, height: 760, hash });
      await page.locator(".hit, .row[role=option], .detail h2").first().waitFor({ state: "attached" });
      await page.waitForTimeout(300);
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window, `${hash} is ${content} wide`);
      if (hash.startsWith("#/search?q")) await picture(page, "phone-search");
      if (hash === "#/catalog?c=default") await picture(page, "phone-catalog");
      await close(page);
    }
  },

  async "an address that leads nowhere is said so"({ browser, server }) {
    const said = { "#/nowhere": "There is no screen", "#/constructor": "There is no screen", "#/operations?view=nowhere": "There is no view nowhere", "#/catalog?c=nope": "There is no catalog", "#/search?c=nope&q=rain": "There is no catalog" };
    for (const [hash, text] of Object.entries(said)) {
      const page = await open(browser, server, { hash });
      await page.getByText(text).waitFor();
      await page.getByRole("link", { name: "Search", exact: true }).first().click();
      await page.locator("#query").waitFor();
      await close(page);
    }
  },

  async "the lines that connect a program are shown and copied"({ browser, server }) {
    const page = await open(browser, server);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("link", { name: "Connect", exact: true }).click();
    const lines = { "Claude Code": `claude mcp add --transport http toolscout ${server.url}/mcp`, "VS Code": `"url": "${server.url}/mcp"`, "OpenAI SDK": `OpenAI(base_url="${server.url}/v1")`, "Python": `toolscout.Client("${server.url}", catalog="default")` };
    for (const [program, line] of Object.entries(lines)) {
      await page.getByRole("button", { name: program, exact: true }).click();
      assert.ok((await page.locator("pre").innerText()).includes(line), program);
    }
    await page.getByRole("button", { name: "curl", exact: true }).click();
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    const answer = await fetch(/"(?<url>[^"]+)"$/u.exec(command).groups.url);
    assert.ok((await answer.json()).hits.length > 0);
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "connect");
    await close(page);
  },

  async "the list of servers is one stop of the Tab key"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/catalog?c=default" });
    await page.getByRole("link", { name: "github 17" }).waitFor();
    await tabTo(page, (element) => element.textContent.startsWith("All servers"));
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.locator(".filter", { hasText: /^9 tools/u }).waitFor();
    const presses = await tabTo(page, (element) => element.getAttribute("aria-label") === "Filter by name");
    assert.ok(presses <= 5, `${presses} presses to the filter`);
    await close(page);
  },

  async "a phone shows all screens below, and the settings in one line"({ browser, server }) {
    const page = await open(browser, server, { width: 360, height: 760, hash: "#/search?q=send+an+email" });
    await page.locator(".hit").first().waitFor();
    for (const name of ["Search", "Catalog", "Agent", "Evaluate", "Operations"]) {
      const box = await page.locator("#nav").getByRole("link", { name, exact: true }).boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y > 700, `${name} is in reach`);
    }
    assert.equal(await page.getByLabel("Mode").isVisible(), false);
    await page.getByText("With the usual settings").click();
    await page.getByLabel("Mode").selectOption("lexical");
    await page.getByText("With mode lexical").waitFor();
    await page.locator(".summary", { hasText: "lexical" }).waitFor();
    await close(page);
  },

  async "dark by the system and by the switch"({ browser, server }) {
    const page = await open(browser, server, { dark: true, hash: "#/search?q=will+it+rain+tomorrow" });
    await page.locator(".hit").first().waitFor();
    const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await colour();
    await picture(page, "search-dark");
    await page.getByRole("button", { name: /^Colours/u }).click();
    const light = await colour();
    assert.notEqual(dark, light);
    await page.reload();
    await page.locator(".hit").first().waitFor();
    assert.equal(await colour(), light, "the choice is kept");
    await close(page);
  },

  async "hostile tools are shown, and run nothing"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search?c=hostile&q=parcel&k=50" });
    await page.locator(".hit").nth(HOSTILE.length - 1).waitFor();
    await picture(page, "hostile");
    await page.evaluate(() => document.querySelectorAll(".why summary, .link").forEach((element) => ["This was right", "Change"].includes(element.textContent) || element.click()));
    await page.waitForTimeout(300);
    const text = await page.locator(".hits").evaluate((hits) => hits.textContent);
    assert.ok(text.includes("<script>window.hostileRan = true</script>"), "markup is shown as it is");
    for (const unseen of ["\u202E", "\u001B", "\u200B", "\u{E0069}"]) assert.ok(!text.includes(unseen), `U+${unseen.codePointAt(0).toString(16)} is not written out`);
    assert.ok((await page.locator(".unseen").count()) > 10);
    const ids = await page.locator(".hit").evaluateAll((hits) => hits.map((hit) => hit.dataset.id));
    assert.equal(ids.length, HOSTILE.length);
    for (const id of ids) {
      await page.goto(`${server.url}/#/catalog?${new URLSearchParams({ c: "hostile", tool: id })}`);
      await page.locator(".detail h2").waitFor();
      await page.locator(".detail summary", { hasText: "JSON" }).click();
    }
    await page.goto(`${server.url}/#/search?c=hostile&q=parcel&format=openai`);
    await page.locator(".export pre").waitFor();
    await close(page);
  },

  async "a key is asked for, kept in the tab alone, and asked for again once it is revoked"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    try {
      await server.post("catalogs/default/tools", [{ name: "weigh", description: "Weighs a parcel." }]);
      const page = await open(browser, server, { expected: /401/u });
      await page.locator("#query").waitFor();
      const token = server.command("keys", "create", "--scope", "admin", "--catalogs", "*").trim();
      await page.locator("#query").fill("weigh a parcel");
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("API key").fill("wrong");
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await dialog.getByText("does not know this API key").waitFor();
      await dialog.getByLabel("API key").fill(token);
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await page.locator(".hit", { hasText: "weigh" }).waitFor();
      assert.equal(await page.locator("#query").inputValue(), "weigh a parcel");
      assert.ok(!page.url().includes(token));
      assert.equal(await page.evaluate((key) => Object.values(localStorage).includes(key), token), false);

      const id = server.command("keys", "list").split(/\s/u)[0];
      server.command("keys", "revoke", id);
      await page.locator("#query").fill("weigh a parcel again");
      await dialog.getByText("revoked").waitFor();
      await dialog.getByLabel("API key").fill(server.command("keys", "create", "--scope", "admin", "--catalogs", "*").trim());
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await page.locator(".summary").waitFor();
      assert.equal(await page.locator("#query").inputValue(), "weigh a parcel again");
      await close(page);
    } finally {
      await server.end();
    }
  },

  async "a server that goes away is said so, and is found again"({ browser }) {
    const server = await Server.start(["--embedder", "none"]);
    await server.post("catalogs/default/tools", [{ name: "weigh", description: "Weighs a parcel." }]);
    const page = await open(browser, server, { expected: /ERR_CONNECTION_REFUSED|Failed to load|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/u });
    await page.locator("#query").fill("weigh");
    await page.locator(".hit").waitFor();
    await server.stop();
    await page.locator("#query").fill("parcel");
    await page.locator("#connection", { hasText: "does not answer" }).waitFor();
    assert.equal(await page.locator(".hit").count(), 1, "the last answer stays in sight");
    await page.getByText("These hits are of an earlier request").waitFor();
    await picture(page, "outdated");
    const again = await Server.start(["--embedder", "none"], server.port, server.data);
    await page.waitForFunction(() => document.getElementById("connection").textContent === "", undefined, { timeout: 30_000 });
    await page.waitForFunction(() => document.querySelector(".hit mark")?.textContent === "parcel");
    assert.equal(await page.locator(".outdated, .outdated-note").count(), 0);
    await close(page);
    await again.end();
  },

  async "the page is small, and ready soon on a slow machine"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/search" });
    const session = await page.context().newCDPSession(page);
    await session.send("Network.enable");
    const sizes = measure(session);
    await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
    await session.send("Network.setCacheDisabled", { cacheDisabled: true });
    await page.reload();
    await page.waitForFunction(() => document.activeElement?.id === "query");
    const ready = await page.evaluate(() => performance.now());
    await page.locator("#query").fill("will it rain");
    await page.locator(".hit").first().waitFor();
    const first = sizes();
    for (const screen of await page.locator("#nav a").allTextContents()) {
      await page.getByRole("link", { name: screen, exact: true }).click();
      await page.waitForFunction(() => !document.querySelector("#main > .skeletons"));
    }
    const all = sizes();
    await close(page);
    assert.ok(all.files >= 30, `${all.files} files`);
    assert.ok(all.transferred < MOST_BYTES, `${all.transferred} bytes are transferred for all screens`);
    assert.ok(first.raw < MOST_FIRST_BYTES, `${first.raw} bytes for the first screen`);
    const said = ({ transferred, raw, files }) => `${transferred} bytes transferred (${raw} raw, ${files} files)`;
    return `all screens ${said(all)}; the first ${said(first)}; ready after ${ready.toFixed(0)} ms with the processor slowed 4 times`;
  },
};

/** Notes the files of the page as they come. Returns what came so far: bytes on the wire with their headers, and bytes of the files. */
function measure(session) {
  const files = new Map();
  session.on("Network.responseReceived", ({ requestId, response }) => {
    const { pathname } = new URL(response.url);
    if (pathname === "/" || pathname.startsWith("/console/")) files.set(requestId, { transferred: 0, raw: 0 });
  });
  session.on("Network.dataReceived", ({ requestId, dataLength }) => {
    if (files.has(requestId)) files.get(requestId).raw += dataLength;
  });
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (files.has(requestId)) files.get(requestId).transferred = encodedDataLength;
  });
  return () => {
    const all = [...files.values()];
    return { files: all.length, transferred: all.reduce((sum, file) => sum + file.transferred, 0), raw: all.reduce((sum, file) => sum + file.raw, 0) };
  };
}

/** Presses Tab until an element that is meant has the focus. Returns how often. */
async function tabTo(page, isMeant) {
  for (let presses = 0; presses < 120; presses += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(`(${isMeant})(document.activeElement)`)) return presses + 1;
  }
  throw new Error(`Tab does not lead to ${isMeant}`);
}
