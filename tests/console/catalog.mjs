/** Screen Catalog. */

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { barriers, close, drop, open, picture } from "./browser.mjs";
import { Server } from "./server.mjs";

const TOOL_FILE = (names) => ({ name: "parcels.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(names.map((name) => ({ name, description: `Does ${name}.` })))) });

export const catalog = {
  async "catalogs, servers, figures and a tool are shown"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/catalog?c=default" });
    await page.locator(".tiles", { hasText: "425" }).waitFor();
    await page.getByRole("link", { name: "github 17" }).click();
    await page.locator(".filter", { hasText: "17 tools" }).waitFor();
    await page.getByLabel("Filter by name").fill("ISSUE");
    await page.waitForFunction(() => [...document.querySelectorAll(".row[role=option] .name")].every((name) => /issue/iu.test(name.textContent)));
    await page.getByRole("option", { name: /^create_issue/u }).click();
    const detail = page.locator(".detail");
    await detail.getByRole("heading", { name: "create_issue" }).waitFor();
    assert.match(await detail.innerText(), /changes something[\s\S]*Arguments[\s\S]*owner[\s\S]*required/u);
    await detail.getByText("JSON", { exact: true }).click();
    assert.match(await detail.locator("pre").innerText(), /"inputSchema"/u);
    assert.match(page.url(), /tool=github%2Fcreate_issue/u);
    await page.goBack();
    await page.getByText("Choose a tool").waitFor();
    await page.goForward();
    await picture(page, "catalog");
    await close(page);
  },

  async "a tool that the server cannot call is offered as a dry run alone"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/catalog?c=default&tool=github%2Fcreate_issue" });
    await page.getByText("Try it").click();
    await page.locator(".try", { hasText: "This server cannot call it" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Call", exact: true }).count(), 0);
    // Enter in a field does the same.
    for (const name of [/^owner/u, /^repo/u, /^title/u]) await page.locator(".try").getByLabel(name).fill("x");
    await page.locator(".try").getByLabel(/^milestone/u).fill("1");
    await page.locator(".try").getByLabel(/^milestone/u).press("Enter");
    await page.locator(".tried", { hasText: "nothing was called" }).waitFor();
    await close(page);
  },

  async "near-duplicates on other servers are named"({ browser, server }) {
    const tool = { name: "send_parcel", description: "Sends a parcel to an address.", inputSchema: { type: "object", properties: { address: { type: "string" } } } };
    await server.post("catalogs", { name: "twins" });
    await server.post("catalogs/twins/tools", [{ ...tool, server: "one" }, { ...tool, server: "two" }]);
    const page = await open(browser, server, { hash: "#/catalog?c=twins&tool=one%2Fsend_parcel" });
    await page.locator(".detail", { hasText: "Near-duplicates" }).getByRole("link", { name: "two/send_parcel" }).click();
    await page.waitForFunction(() => location.hash.includes("two%2Fsend_parcel"));
    await close(page);
  },

  async "a tool shows the description that models read, and the owner's other words"({ browser, server }) {
    const id = "slack/slack_send_message";
    const put = (words) => fetch(`${server.url}/v1/catalogs/default/words`, { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(words) });
    const { description } = await server.get(`catalogs/default/tools/${encodeURIComponent(id)}`);
    await put({ descriptions: { [id]: "Posts a message; the on-call team reads #ops." }, aliases: { [id]: ["page the team"] }, pins: { paging: { query: "wake them up", match: "contains", tool: id, place: 1 } }, boosts: { servers: { slack: 1.2 } } });
    const page = await open(browser, server, { hash: `#/catalog?c=default&tool=${encodeURIComponent(id)}` });
    const detail = page.locator(".detail");
    await detail.getByText("Models read the owner's description:").waitFor();
    await detail.getByText("Posts a message; the on-call team reads #ops.", { exact: true }).waitFor();
    await detail.getByText("The server's description").click();
    await detail.getByText(description.slice(0, 60)).first().waitFor();
    await detail.getByRole("heading", { name: "The owner's words" }).waitFor();
    assert.match(await detail.innerText(), /Also called page the team\s+Pinned to place 1 for requests with wake them up Take back\s+Boosted by the factor 1\.2 of the server slack/u);
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "catalog-owner");
    await close(page);
    await put({});
  },

  async "the owner of a catalog changes what is said of a tool"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/catalog?c=default&tool=github%2Fcreate_issue" });
    const detail = page.locator(".detail");
    await detail.getByText("No other names, pins or factors.").waitFor();
    const change = detail.getByRole("button", { name: "Change" });
    await change.click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Description for search and models").fill("Reports a fault.");
    await dialog.getByLabel("Also called").fill("tell them it broke\nfile a bug");
    await dialog.getByLabel("Factor of its score").fill("1.5");
    assert.deepEqual((await barriers(page)).serious, []);
    await picture(page, "catalog-words");
    await dialog.getByRole("button", { name: "Save" }).click();
    await detail.getByText("Models read the owner's description:").waitFor();
    assert.match(await detail.innerText(), /Reports a fault\.[\s\S]*Also called tell them it broke\s+Also called file a bug\s+Boosted by the factor 1\.5 of this tool/u);
    const { hits } = await server.post("catalogs/default/search", { query: "tell them it broke" });
    assert.equal(hits[0].id, "github/create_issue");
    await change.click();
    for (const label of ["Description for search and models", "Also called", "Factor of its score"]) await dialog.getByLabel(label).fill("");
    await dialog.getByRole("button", { name: "Save" }).click();
    await detail.getByText("No other names, pins or factors.").waitFor();
    await detail.getByRole("button", { name: "Undo" }).click();
    await detail.getByText("Boosted by the factor 1.5 of this tool").waitFor();
    assert.match(await detail.innerText(), /Reports a fault\.[\s\S]*Also called tell them it broke\s+Also called file a bug[\s\S]*Undone\./u);
    await change.click();
    for (const label of ["Description for search and models", "Also called", "Factor of its score"]) await dialog.getByLabel(label).fill("");
    await dialog.getByRole("button", { name: "Save" }).click();
    await detail.getByText("No other names, pins or factors.").waitFor();
    const { words } = await server.get("catalogs/default/words");
    assert.deepEqual([words.descriptions ?? {}, words.aliases ?? {}, words.boosts?.tools ?? {}], [{}, {}, {}]);
    await close(page);
  },

  async "a tool that an address names is marked in its list, and End leads to the last of 20,000"({ browser, large }) {
    const page = await open(browser, large, { hash: "#/catalog?c=default&tool=large%2Ftool_12345" });
    await page.locator('.row[aria-selected="true"]', { hasText: "tool_12345" }).waitFor();
    const list = page.getByRole("listbox");
    const isSeen = await list.evaluate((element) => {
      const [box, row] = [element, element.querySelector('[aria-selected="true"]')].map((one) => one.getBoundingClientRect());
      return row.top >= box.top && row.bottom <= box.bottom;
    });
    assert.ok(isSeen, "the row is in sight");
    await list.focus();
    await page.keyboard.press("End");
    await page.locator(".row.active", { hasText: "tool_19999" }).waitFor();
    await page.keyboard.press("Home");
    await page.locator(".row.active", { hasText: "tool_00000" }).waitFor();
    await close(page);
  },

  async "the way back leads to where a list was left"({ browser, large }) {
    const page = await open(browser, large, { hash: "#/catalog?c=default" });
    await page.getByRole("option").first().waitFor();
    const list = page.getByRole("listbox");
    await list.evaluate((element) => { element.scrollTop = 50 * 5000; });
    await page.getByRole("option", { name: /^tool_05000/u }).waitFor();
    await page.waitForFunction(() => history.state?.list === 250_000);
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator("#query").waitFor();
    await page.goBack();
    await page.getByRole("option", { name: /^tool_05000/u }).waitFor();
    await page.waitForFunction(() => history.state?.list > 0);
    await page.getByRole("link", { name: /^large/u }).click();
    await page.getByRole("option", { name: /^tool_00000/u }).waitFor();
    await page.goBack();
    await page.getByRole("option", { name: /^tool_05000/u }).waitFor();
    await close(page);
  },

  async "texts of a tool are written by a person and by the model, measured and deleted"({ browser }) {
    const script = join(mkdtempSync(join(tmpdir(), "toolscout-texts-")), "script.jsonl");
    const answer = { 1: ["somebody should get this box by Friday"] };
    writeFileSync(script, JSON.stringify({ reply: { text: JSON.stringify(answer) } }));
    const server = await Server.start([], 0, undefined, ["--llm", `script:${script}`]);
    const tool = (name, description) => ({ name, description, server: "post" });
    await server.post("catalogs/default/tools", [tool("send_parcel", "Sends a parcel."), tool("track", "Shows where a parcel is.")]);
    const page = await open(browser, server, { hash: "#/catalog?c=default&tool=post%2Ftrack", expected: /422/u });
    const detail = page.locator(".detail");
    await detail.getByText("No texts of what people say").waitFor();
    await detail.getByRole("button", { name: "Write" }).click();
    const save = page.getByRole("dialog").getByRole("button", { name: "Save" });
    assert.ok(await save.isDisabled(), "there is no text yet");
    await page.getByRole("dialog").getByLabel("What people say").fill("my package has not come\nwhen will it be here");
    await save.click();
    await detail.getByText("when will it be here").waitFor();
    await detail.getByText("Written by person").waitFor();
    await picture(page, "texts");

    await server.post("catalogs/default/tools", [{ name: "pay", description: "Pays an invoice.", server: "bank" }]);
    await detail.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("dialog").getByLabel("What people say").fill("pay a bill for me");
    await save.click();
    const doubt = page.getByRole("dialog", { name: "Save these texts all the same?" });
    await doubt.getByText("held: speaks of bank/pay").waitFor();
    await doubt.getByRole("button", { name: "Save" }).click();
    await detail.getByText("pay a bill for me").waitFor();
    await fetch(`${server.url}/v1/catalogs/default/tools/bank/pay`, { method: "DELETE" });

    const all = page.locator(".catalog-texts");
    await page.reload();
    await all.getByText("1 of 2 tools with texts").waitFor();
    await all.getByRole("button", { name: "Write the others" }).click();
    await page.getByRole("dialog", { name: "Let the model write texts?" }).getByText("1 tool").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Write" }).click();
    await all.getByText("2 of 2 tools with texts").waitFor();
    await all.getByRole("button", { name: "What are they worth?" }).click();
    await all.getByText("Of what people would say").waitFor();
    await picture(page, "texts-worth");

    await detail.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await detail.getByText("No texts of what people say").waitFor();
    await close(page);
    await server.stop();
  },

  async "a file is added with the errors of its items, a tool removed, a catalog made and deleted"({ browser, server }) {
    const page = await open(browser, server, { hash: "#/catalog" });
    await page.getByRole("button", { name: "New catalog" }).click();
    await page.getByLabel("Name", { exact: true }).fill("parcels");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name: "parcels" }).waitFor();
    await page.getByText("No tools.").waitFor();

    const choosing = page.waitForEvent("filechooser");
    await page.getByRole("button", { name: "Add tools" }).click();
    await (await choosing).setFiles([TOOL_FILE(["track", "send", ""])]);
    await page.getByRole("dialog").getByRole("button", { name: "Add tools" }).click();
    await page.locator(".load", { hasText: "2 added, 1 failed" }).waitFor();
    await page.locator(".load summary").click();
    assert.match(await page.locator(".load").innerText(), /Item 3/u);
    await page.getByRole("option", { name: /^track parcels/u }).waitFor();

    await drop(page, ".catalog", "more.yaml", "- name: weigh\n  description: Weighs a parcel.\n");
    await page.getByRole("dialog").getByRole("button", { name: "Add tools" }).click();
    await page.getByRole("option", { name: /^weigh more/u }).click();

    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.waitForFunction(() => ![...document.querySelectorAll(".row .name")].some((name) => name.textContent === "weigh"));

    await page.getByRole("button", { name: "Delete catalog" }).click();
    const accept = page.getByRole("dialog").getByRole("button", { name: "Delete" });
    assert.ok(await accept.isDisabled(), "the name is not typed yet");
    await page.getByLabel("Type parcels to confirm").fill("parcels");
    await accept.click();
    await page.getByRole("heading", { name: "default" }).waitFor();
    assert.equal(await page.getByRole("link", { name: /^parcels/u }).count(), 0);
    await close(page);
  },

  async "20,000 tools stay a short page, to the last of them"({ browser, large }) {
    const page = await open(browser, large, { hash: "#/catalog" });
    await page.getByRole("option").first().waitFor();
    const frames = await page.evaluate(async () => {
      const list = document.querySelector(".list");
      const frames = [];
      for (let step = 0, before = performance.now(); step < 90; step += 1) {
        list.scrollTop += 700;
        await new Promise(requestAnimationFrame);
        frames.push(performance.now() - before);
        before = performance.now();
      }
      list.scrollTop = list.scrollHeight;
      return frames.sort((a, b) => a - b);
    });
    await page.getByRole("option", { name: /^tool_19999/u }).waitFor({ timeout: 60_000 });
    const rows = await page.locator(".row").count();
    assert.ok(rows < 80, `${rows} rows are in the page`);
    await page.getByLabel("Filter by name").fill("tool_12345");
    await page.locator(".filter", { hasText: "1 tool" }).waitFor();
    await close(page);
    return `frames while scrolling: median ${frames[45].toFixed(0)} ms, 95% ${frames[85].toFixed(0)} ms; ${rows} rows drawn`;
  },

  async "no serious barrier, in light and dark"({ browser, server }) {
    for (const dark of [false, true]) {
      const page = await open(browser, server, { dark, hash: "#/catalog?c=default&tool=github%2Fcreate_issue" });
      await page.locator(".detail h2").waitFor();
      await page.locator(".tiles").waitFor();
      assert.deepEqual((await barriers(page)).serious, []);
      await page.getByRole("button", { name: "Delete catalog" }).click();
      assert.deepEqual((await barriers(page)).serious, []);
      await close(page);
    }
  },
};
