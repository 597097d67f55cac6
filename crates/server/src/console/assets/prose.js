/** What a model wrote: plain text with its line breaks, and code between fences. */

import { h } from "./dom.js";
import { count, foreign } from "./text.js";

/** Characters that are drawn; a model that repeats itself writes more. */
const SHOWN = 120_000;
const FENCE = /^ {0,3}(?:`{3,}|~{3,})([^\n]*)$/u;

/** @returns {Node[]} the paragraphs and blocks of code of a text */
export function prose(text) {
  const blocks = [];
  let lines = [];
  let isCode = false;
  const close = () => {
    const block = lines.join("\n").replace(/^\n+|\s+$/gu, "");
    if (isCode) blocks.push(h("pre", { tabindex: 0, "aria-label": "Code" }, foreign(lines.join("\n"))));
    else if (block !== "") blocks.push(foreign(block, [], { class: "lines" }));
    lines = [];
  };
  for (const line of text.slice(0, SHOWN).split("\n")) {
    if (FENCE.test(line)) {
      close();
      isCode = !isCode;
    } else lines.push(line);
  }
  close();
  if (text.length > SHOWN) blocks.push(h("p", { class: "muted" }, `${count(text.length - SHOWN)} more characters are not shown.`));
  return blocks;
}
