/** A browser, and pages that note everything that must not happen. */

import { createRequire } from "node:module";
import { readFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PATIENCE_MS = 20_000;
const PICTURES = process.env.CONSOLE_PICTURES;
mkdirSync(PICTURES, { recursive: true });

export const launch = () => chromium.launch({ executablePath: process.env.TOOLSCOUT_TEST_CHROMIUM, args: ["--no-sandbox"] });

/**
 * Opens a page on a server.
 * @param {{hash?: string, dark?: boolean, width?: number, height?: number, expected?: RegExp}} options `expected`
 *   are errors that the console may print, because the server answers so
 */
export async function open(browser, server, { hash = "", dark = false, width = 1280, height = 860, expected } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: width < 500 });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !expected?.test(message.text())) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${server.url}/`)) faults.push(`request to ${request.url()}`);
  });
  await page.addInitScript(() => {
    window.violations = [];
    addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(`${server.url}/${hash}`);
  return Object.assign(page, { faults });
}

/** Fails if something happened that must not, and closes the page. */
export async function close(page) {
  const violations = await page.evaluate(() => window.violations.concat(window.hostileRan ? ["a hostile script ran"] : []));
  const all = [...page.faults, ...violations];
  await page.context().close();
  if (all.length > 0) throw new Error(all.join("\n"));
}

export const picture = (page, name) => page.screenshot({ path: join(PICTURES, `${name}.png`) });

/** The serious findings about accessibility. */
export async function barriers(page) {
  // Into a world of its own: the policy of the page would refuse the script, as it should.
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  const run = (expression) => session.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
  await run(AXE);
  const { result, exceptionDetails } = await run("axe.run(document).then(({ violations }) => violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.slice(0, 4).map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`) })))");
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  await session.detach();
  const found = result.value.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return { serious: found, others: result.value.length - found.length };
}

/** Drops a file of this text onto an element. */
export async function drop(page, selector, name, text) {
  const transfer = await page.evaluateHandle(([fileName, content]) => {
    const data = new DataTransfer();
    data.items.add(new File([content], fileName));
    return data;
  }, [name, text]);
  await page.dispatchEvent(selector, "drop", { dataTransfer: transfer });
}
