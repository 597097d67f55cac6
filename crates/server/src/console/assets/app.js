/** The page: its screens, the colours, the key, and what it says of the connection. */

import { call, key } from "./api.js";
import { onConnection, retryNow } from "./connection.js";
import { debounce, h, icon, replace, skeleton } from "./dom.js";
import { permissions } from "./permissions.js";
import { address, here, note, remember, remembered } from "./place.js";
import { search } from "./search.js";
import { foreign, oneLine } from "./text.js";
import { drawWaiting, lookNow, waitingCalls, watchWaiting } from "./waiting.js";

/** The screens. A link beside the navigation leads to those that are rarely needed. */
const SCREENS = {
  home: { title: "Home", open: async () => (await styled("home.css", import("./home.js"))).home },
  search: { title: "Search", open: async () => search },
  catalog: { title: "Catalog", open: async () => (await styled("catalog.css", import("./catalog.js"))).catalog },
  agent: { title: "Agent", open: async () => (await styled("agent.css", import("./agent.js"))).agent },
  evaluate: { title: "Evaluate", open: async () => (await styled("evaluate.css", import("./evaluate.js"))).evaluate },
  operations: { title: "Operations", open: async () => (await styled("operations.css", import("./operations.js"))).operations },
  connect: { title: "Connect", isBeside: true, open: async () => (await styled("connect.css", import("./connect.js"))).connect },
};
const KEEP_SCROLL_MS = 150;
const THEMES = { system: "System", light: "Light", dark: "Dark" };

const main = document.getElementById("main");
/** The address that each screen had last, to come back to. */
const lastAddress = new Map();
let current = null;
/** Counts the visits, so that a slow one does not replace a later one. */
let visits = 0;

/** A screen by its name in an address; undefined if there is none. */
const screenOf = (name) => (Object.hasOwn(SCREENS, name) ? SCREENS[name] : undefined);

async function show() {
  const { screen, params } = here();
  const known = screenOf(screen);
  visits += 1;
  const visit = visits;
  leave();
  restoreScroll();
  drawNavigation(known);
  showWaiting();
  if (!known) return showNothing(`There is no screen "${oneLine(screen, 60)}"`);
  replace(main, skeleton(6, "short"));
  try {
    const [open, list] = await Promise.all([known.open(), loadCatalogs()]);
    const allowed = await permissions();
    if (visit !== visits) return;
    if (location.hash === "" && list.every(({ tools }) => tools === 0)) {
      note("home", {});
      return show();
    }
    if (isUnknown(list, params.get("c"))) return showUnknownCatalog(screen, list, params.get("c"));
    const name = chosenCatalog(list, params);
    document.getElementById("connect").href = address("connect", { c: name });
    current = { screen, view: open(main, params, { list, name, allowed }) };
    showKeyButton();
  } catch (error) {
    if (visit === visits) showFailure(error);
  }
}

const keepScroll = debounce(KEEP_SCROLL_MS, () => remember({ top: scrollY }));
/** What waits until the page is as long as it was. */
let restoring = null;

/** Scrolls to where this entry of the history was left, once what it shows is there. */
function restoreScroll() {
  endRestoring();
  keepScroll.cancel();
  const top = remembered("top") ?? 0;
  if (top === 0) return;
  restoring = new ResizeObserver(() => {
    if (document.documentElement.scrollHeight - innerHeight < top) return;
    endRestoring();
    scrollTo(0, top);
  });
  restoring.observe(main);
}

function endRestoring() {
  restoring?.disconnect();
  restoring = null;
}

function leave() {
  current?.view.stop();
  current = null;
  main.onkeydown = null;
}

async function loadCatalogs() {
  return (await call("v1/catalogs")).catalogs;
}

/** The catalog of the address; else the usual one, unless it is empty and another is not; else the first. */
function chosenCatalog(list, params) {
  const isUsual = ({ name }) => name === "default";
  const filled = list.filter(({ tools }) => tools > 0);
  const usual = filled.find(isUsual) ?? filled[0] ?? list.find(isUsual) ?? list[0];
  return params.get("c") ?? usual?.name ?? "default";
}

const isUnknown = (list, name) => name !== null && list.length > 0 && !list.some((catalog) => catalog.name === name);

/** In the place of a catalog that an address names and that is not there, for example since it was deleted. */
function showUnknownCatalog(screen, list, name) {
  const links = list.slice(0, 20).map((catalog) => h("li", {}, h("a", { href: address(screen, { c: catalog.name }) }, foreign(catalog.name))));
  const known = links.length > 0 && [h("p", { class: "muted" }, "Catalogs that you can see:"), h("ul", { class: "plain" }, links)];
  showNothing(`There is no catalog "${oneLine(name, 80)}"`, known);
  showKeyButton();
}

/** In the place of a screen, if an address leads nowhere. */
function showNothing(title, ...content) {
  const back = h("a", { href: address("search", {}) }, "Search");
  replace(main, h("div", { class: "empty" }, h("h1", {}, foreign(title)), h("p", {}, "The address may be mistyped or old. ", back, " is a good place to begin."), content));
}

/** What is loaded, once the style sheet that belongs to it is there too. */
async function styled(name, loading) {
  const href = `console/${name}`;
  if (!document.head.querySelector(`link[href="${href}"]`)) {
    await new Promise((resolve, reject) => {
      const link = h("link", { rel: "stylesheet", href, onload: resolve });
      link.addEventListener("error", () => {
        link.remove();
        reject(new Error("The style sheet of this screen did not come."));
      });
      document.head.append(link);
    });
  }
  return loading;
}

function showFailure(error) {
  const retry = h("button", { type: "button", class: "primary", onclick: show }, "Try again");
  replace(main, h("div", { class: "empty", role: "alert" }, h("h1", {}, "This did not work"), h("p", {}, foreign(error.message)), retry));
  showKeyButton();
}

function drawNavigation(active) {
  const links = Object.entries(SCREENS).filter(([, screen]) => !screen.isBeside).map(([name, screen]) => h("a", {
    href: lastAddress.get(name) ?? address(name, {}),
    "aria-current": screen === active && "page",
  }, screen.title, name === "operations" && h("span", { id: "waiting-count" })));
  replace(document.getElementById("nav"), links);
}

/** Shows how many calls wait for a person, wherever the page is. */
function showWaiting() {
  const { screen, params } = here();
  const count = waitingCalls();
  const title = screenOf(screen)?.title ?? "Nothing here";
  document.title = `${count > 0 ? `(${count}) ` : ""}${title} · toolscout`;
  const badge = count > 0 && h("span", { class: "badge warn number" }, count, h("span", { class: "sr" }, " waiting for approval"));
  replace(document.getElementById("waiting-count"), badge);
  drawWaiting(document.getElementById("waiting"), screen === "operations" && params.get("view") === "approvals");
}

/** A link of the navigation leads to where its screen was left. */
function rememberAddress() {
  const { screen } = here();
  if (screenOf(screen)) lastAddress.set(screen, location.hash);
}

function showTheme() {
  const button = document.getElementById("theme");
  const theme = document.documentElement.dataset.theme ?? "system";
  const drawings = { system: "system", light: "sun", dark: "moon" };
  replace(button, icon(drawings[theme]), h("span", { class: "wide-only" }, THEMES[theme]));
  button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const theme = document.documentElement.dataset.theme ?? "system";
  const next = names[(names.indexOf(theme) + 1) % names.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem("toolscout.theme", next);
  showTheme();
}

function showKeyButton() {
  document.getElementById("key").hidden = key.read() === "";
}

async function forgetKey() {
  const content = [h("p", {}, "This tab holds an API key. Without it the page asks for one again.")];
  const { ask } = await import("./dialog.js");
  if (!(await ask("Forget the key?", content, { accept: "Forget it" }))) return;
  key.forget();
  show();
}

function showConnection({ isLost, retryAt }, isBack) {
  const box = document.getElementById("connection");
  if (!isLost) {
    replace(box);
    if (isBack) comeBack();
    return;
  }
  const seconds = Math.max(Math.ceil((retryAt - Date.now()) / 1000), 0);
  const when = seconds > 1 ? `It is asked again in ${seconds} s.` : "It is asked again.";
  replace(box, h("p", { class: "notice warn" }, h("b", {}, "The server does not answer. "), when, " Nothing that you typed is lost. ",
    h("button", { type: "button", class: "link", onclick: retryNow }, "Ask now")));
}

function comeBack() {
  if (current) current.view.again();
  else show();
}

async function showVersion() {
  try {
    const { version } = await call("version");
    document.getElementById("version").textContent = version;
  } catch {
    // Only a decoration; the connection says what is wrong.
  }
}

addEventListener("hashchange", () => {
  rememberAddress();
  const { screen, params } = here();
  if (current?.screen === screen && current.view.goTo?.(params)) return showWaiting();
  show();
});
history.scrollRestoration = "manual";
addEventListener("scroll", () => { if (!restoring) keepScroll(); }, { passive: true });
// Whoever scrolls by hand is not taken elsewhere.
for (const name of ["wheel", "touchmove", "keydown"]) addEventListener(name, endRestoring, { passive: true });
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = main.querySelector("input[type=search], .ask textarea");
  if (!box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
document.getElementById("nav").addEventListener("click", () => rememberAddress(), true);
document.getElementById("skip").addEventListener("click", () => main.focus());
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("key").addEventListener("click", forgetKey);
addEventListener("key", () => {
  showKeyButton();
  lookNow();
});
onConnection(showConnection);
showTheme();
showVersion();
show().then(() => watchWaiting(showWaiting));
