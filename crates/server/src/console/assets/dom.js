/** Elements, made without ever reading text as HTML. */

/**
 * Makes an element. Of the properties, `class`, `aria-*`, `data-*` and other attributes are set as
 * attributes, functions under `on…` listen, and false or null leaves an attribute out.
 * @param {string} name
 * @param {Record<string, unknown>} [properties]
 * @param {...(Node|string|number|null|false|undefined|Array)} children
 * @returns {HTMLElement}
 */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) setProperty(element, key, value);
  append(element, children);
  return element;
}

/** Properties that are no attributes, or whose attribute is only the first value. */
const LIVE = new Set(["value", "checked", "selected", "disabled", "hidden", "htmlFor"]);

function setProperty(element, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (LIVE.has(key)) element[key] = value;
  else element.setAttribute(key, value === true ? "" : String(value));
}

/** Adds children; texts become text nodes. */
export function append(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
  return parent;
}

/** Puts these children in place of all that there are. */
export function replace(parent, ...children) {
  parent.replaceChildren();
  return append(parent, children);
}

const PATHS = {
  check: "m3 8.5 3 3 7-7",
  copy: "M5.5 5.5v-3h8v8h-3m-8-5h8v8h-8z",
  cross: "m4 4 8 8m0-8-8 8",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5z",
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3m-4 4 4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  search: "m10.5 10.5 3 3M7 11.5a4.5 4.5 0 1 1 0-9 4.5 4.5 0 0 1 0 9z",
  sun: "M8 1v1.5m0 11V15M1 8h1.5m11 0H15M3 3l1 1m8 8 1 1m0-10-1 1m-8 8-1 1M11 8a3 3 0 1 1-6 0 3 3 0 0 1 6 0z",
  system: "M2.5 3h11v7.5h-11zM6 13.5h4",
};

/** Makes an element of a drawing. */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return append(element, children);
}

/** A small drawing beside a text; readers of screens are told the text alone. */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

/** A bar of a share from 0 to 1. The number stands beside it, so the bar is not read out. */
export function bar(share, kind = "") {
  const filled = h("span");
  // A property and not an attribute, which the policy of the page would refuse.
  filled.style.width = `${Math.round(Math.min(Math.max(share, 0), 1) * 1000) / 10}%`;
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, filled);
}

/** Says something to readers of screens. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Grey blocks in the place of what is being loaded. */
export function skeleton(rows, kind) {
  const blocks = Array.from({ length: rows }, () => h("div", { class: `skeleton ${kind}` }));
  return h("div", { class: "skeletons", "aria-hidden": "true" }, blocks);
}

/** A button that copies a text, and says whether it could. */
export function copyButton(text, label = "Copy") {
  const caption = h("span", {}, label);
  const button = h("button", { type: "button", class: "quiet" }, icon("copy"), caption);
  button.addEventListener("click", async () => {
    const said = (await copy(text())) ? "Copied" : "Not copied: select it and copy by hand";
    caption.textContent = said;
    announce(said);
    setTimeout(() => { caption.textContent = label; }, 2000);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** For pages over HTTP from another machine, which have no clipboard of their own. */
function copyBySelection(text) {
  const area = h("textarea", { class: "sr", value: text, "aria-hidden": "true" });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/**
 * Makes the links of a list one stop of the Tab key: arrows, Home and End go from one to another. It is called anew when the links are.
 * @param {HTMLElement} list
 */
export function oneStop(list) {
  const links = [...list.querySelectorAll("a")];
  const first = list.querySelector("a[aria-current]") ?? links[0];
  for (const link of links) link.tabIndex = link === first ? 0 : -1;
  list.onkeydown = (event) => {
    const at = links.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    links[Math.min(Math.max(to, 0), links.length - 1)].focus();
  };
  return list;
}

/** Calls a function once it has not been asked for during this time. */
export function debounce(wait, call) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(call, wait, ...values);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
