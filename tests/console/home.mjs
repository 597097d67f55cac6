/** Screen Home: the first steps, what needs a person, and what happened. */

import assert from "node:assert/strict";
import { barriers, close, drop, open, picture } from "./browser.mjs";
import { Server } from "./server.mjs";

const TOOLS = JSON.stringify([{ server: "post", name: "weigh", description: "Weighs a parcel." }, { server: "post", name: "send", description: "Sends a parcel." }]);

async function on(server, check) {
  try {
    return await check(server);
  } finally {
    await server.end();
  }
}

export const home = {
  async "an empty server leads through three steps"({ browser }) {
    await on(await Server.start(["--embedder", "none"]), async (server) => {
      const page = await open(browser, server);
      await page.getByRole("heading", { name: "Three steps" }).waitFor();
      assert.ok(page.url().endsWith("#/home"));
      assert.deepEqual((await barriers(page)).serious, []);
      await picture(page, "home-first");
      await drop(page, ".home", "tools.json", TOOLS);
      await page.getByRole("dialog").getByRole("button", { name: "Add tools" }).click();
      await page.getByText("2 tools added.").waitFor();
      await page.getByRole("link", { name: "copy the lines" }).click();
      await page.getByRole("button", { name: "Claude Code", exact: true }).waitFor();
      await page.goBack();
      // Now there are tools.
      await page.getByRole("heading", { name: "Today" }).waitFor();
      await page.getByText("Nothing waits for you.").waitFor();
      await page.getByLabel("Request", { exact: true }).fill("weigh a parcel");
      await page.getByLabel("Request", { exact: true }).press("Enter");
      await page.locator(".hit", { hasText: "weigh" }).waitFor();
      await close(page);
      const again = await open(browser, server);
      await again.locator("#query").waitFor();
      await close(again);
    });
  },

  async "home shows what happened, and what a limited key may see"({ browser }) {
    await on(await Server.start(["--embedder", "none"]), async (server) => {
      await server.post("catalogs/default/tools", TOOLS);
      for (const query of ["weigh a parcel", "send it"]) await server.post("search", { query, format: "openai" });
      await server.post("catalogs/default/calls", { tool: "post/weigh", arguments: {} });
      await server.until(async () => (await server.get("usage?since_days=1")).totals.searches === 2);
      for (const dark of [false, true]) {
        const page = await open(browser, server, { dark, hash: "#/home" });
        await page.locator(".tiles div", { hasText: /^searches\s*2$/u }).waitFor();
        await page.getByRole("img", { name: /^Searches by hour, 48 hours: at most 2, /u }).waitFor();
        await page.locator(".calls li", { hasText: "post/weigh" }).getByText("refused").waitFor();
        assert.deepEqual((await barriers(page)).serious, []);
        await picture(page, dark ? "home-dark" : "home");
        await close(page);
      }
      const phone = await open(browser, server, { width: 360, height: 760, hash: "#/home" });
      await phone.locator(".chart").first().waitFor();
      const [content, window] = await phone.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.equal(content, window, `home is ${content} wide`);
      await picture(phone, "home-phone");
      await close(phone);

      server.command("keys", "create", "--scope", "admin", "--catalogs", "*");
      const key = server.command("keys", "create", "--scope", "search", "--catalogs", "default").trim();
      const page = await open(browser, server, { hash: "#/home", expected: /401/u });
      await page.getByRole("dialog").getByLabel("API key").fill(key);
      await page.getByRole("dialog").getByRole("button", { name: "Use this key" }).click();
      await page.getByText("What this key may see").waitFor();
      await page.getByText("Nothing waits for you.").waitFor();
      await page.locator(".home li", { hasText: "default 2 tools" }).waitFor();
      await close(page);
    });
  },

  async "home lists what needs a person, with a link to it"({ browser }) {
    await on(await Server.start(["--embedder", "none"], 0, undefined, ["--mcp-server", "away=false"]), async (server) => {
      await server.post("catalogs/default/tools", TOOLS);
      const page = await open(browser, server, { hash: "#/home" });
      await page.locator(".needs li", { hasText: "away is not connected since" }).getByRole("link", { name: "away" }).click();
      await page.locator(".connections", { hasText: "Not connected" }).waitFor();
      await close(page);
    });
  },
};
