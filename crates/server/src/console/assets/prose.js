/**
 * What a model wrote, as Markdown: a subset that cannot do harm. HTML stays text, pictures are named and not fetched, and a link
 * shows where it leads.
 */

import { h } from "./dom.js";
import { count, foreign, oneLine } from "./text.js";

/** Characters that are drawn; a model that repeats itself writes more. */
const SHOWN = 120_000;
/** Lists and quotes within each other; deeper ones stay text. */
const MOST_DEPTH = 5;
const MOST_COLUMNS = 20;

const FENCE = /^ {0,3}(`{3,}|~{3,})[^\n`]*$/u;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/u;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*$/u;
const QUOTE = /^ {0,3}> ?(.*)$/u;
const ITEM = /^( {0,20})(?:[-*+]|(\d{1,9})[.)])[ \t]+(.*)$/u;
const UNDER_TABLE_HEAD = /^:?-+:?$/u;
/** Code, a picture, a link, bold, italic. Each has a bound, so that a hostile text is read in little time. */
const INLINE = /`([^`\n]{1,500})`|!\[([^\]\n]{0,200})\]\(([^)\s]{1,1000})\)|\[([^\]\n]{1,200})\]\(([^)\s]{1,1000})\)|\*\*([^*\n]{1,300})\*\*|(?<![\p{L}\p{N}*_])([*_])([^*_\n]{1,300})\7(?![\p{L}\p{N}*_])/gu;
const ADDRESS = /^(?:https?:\/\/|mailto:)/iu;

/** @returns {Node[]} the paragraphs, lists, tables and blocks of code of a text */
export function prose(text) {
  const blocks = blocksOf(text.slice(0, SHOWN).replace(/\r\n/gu, "\n").split("\n"), 0);
  if (text.length > SHOWN) blocks.push(h("p", { class: "muted" }, `${count(text.length - SHOWN)} more characters are not shown.`));
  return blocks;
}

function blocksOf(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const [block, next] = blockAt(lines, at, depth);
    if (block) blocks.push(block);
    at = next;
  }
  return blocks;
}

/** The block that begins at a line, and the line after it. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  if (line.trim() === "") return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return codeAt(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  // The page has two levels of its own.
  if (heading) return [h(`h${Math.min(heading[1].length + 2, 6)}`, {}, inline(heading[2])), at + 1];
  if (RULE.test(line)) return [h("hr"), at + 1];
  if (depth < MOST_DEPTH && QUOTE.test(line)) return quoteAt(lines, at, depth);
  if (depth < MOST_DEPTH && ITEM.test(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at, depth);
}

function codeAt(lines, at, fence) {
  let end = at + 1;
  while (end < lines.length && !(FENCE.test(lines[end]) && lines[end].trim().startsWith(fence))) end += 1;
  return [h("pre", { tabindex: 0, "aria-label": "Code" }, foreign(lines.slice(at + 1, end).join("\n"))), end + 1];
}

function quoteAt(lines, at, depth) {
  let end = at;
  const within = [];
  for (; end < lines.length && QUOTE.test(lines[end]); end += 1) within.push(QUOTE.exec(lines[end])[1]);
  return [h("blockquote", {}, blocksOf(within, depth + 1)), end];
}

function listAt(lines, at, depth) {
  const [, indent, number] = ITEM.exec(lines[at]);
  const isOrdered = number !== undefined;
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length > indent.length + 1 || (item[2] !== undefined) !== isOrdered) break;
    const within = [item[3]];
    end += 1;
    for (; end < lines.length && isWithin(lines, end, indent.length); end += 1) within.push(dedented(lines[end], indent.length + 2));
    items.push(h("li", {}, blocksOf(within, depth + 1)));
  }
  return [isOrdered ? h("ol", { start: Number(number) }, items) : h("ul", {}, items), end];
}

/** Whether a line belongs to an item of a list that is indented so far. */
function isWithin(lines, at, indent) {
  const [line, next] = [lines[at], lines[at + 1] ?? ""];
  if (line.trim() === "") return next.trim() !== "" && spaces(next) > indent + 1;
  return spaces(line) > indent + 1;
}

const spaces = (line) => line.length - line.trimStart().length;
const dedented = (line, indent) => line.slice(Math.min(spaces(line), indent));

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && cellsOf(lines[at + 1]).every((cell) => UNDER_TABLE_HEAD.test(cell));

function tableAt(lines, at) {
  let end = at + 2;
  const rows = [];
  for (; end < lines.length && lines[end].includes("|"); end += 1) rows.push(h("tr", {}, cellsOf(lines[end]).map((cell) => h("td", {}, inline(cell)))));
  const head = h("tr", {}, cellsOf(lines[at]).map((cell) => h("th", { scope: "col" }, inline(cell))));
  const table = h("table", {}, h("thead", {}, head), h("tbody", {}, rows));
  return [h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, table), end];
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/gu, "").split("|", MOST_COLUMNS).map((cell) => cell.trim());

function paragraphAt(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !beginsBlock(lines, end, depth)) end += 1;
  return [h("p", { class: "lines" }, inline(lines.slice(at, end).join("\n"))), end];
}

function beginsBlock(lines, at, depth) {
  const line = lines[at];
  const isNested = depth < MOST_DEPTH && (QUOTE.test(line) || ITEM.test(line));
  return line.trim() === "" || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || isNested || isTable(lines, at);
}

/** The words of a line, with code, emphasis and links. */
function inline(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > from) nodes.push(foreign(text.slice(from, found.index)));
    nodes.push(marked(found));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(foreign(text.slice(from)));
  return nodes;
}

function marked([whole, code, picture, source, caption, address, bold, , italic]) {
  if (code !== undefined) return h("code", {}, foreign(code));
  if (picture !== undefined) return h("span", { class: "muted" }, "picture ", foreign(picture), " at ", foreign(oneLine(source, 300)));
  if (bold !== undefined) return h("strong", {}, inline(bold));
  if (italic !== undefined) return h("em", {}, inline(italic));
  return ADDRESS.test(address) ? link(caption, address) : foreign(whole);
}

/** A link beside its address, since its words may promise another one. */
function link(caption, address) {
  const anchor = h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, foreign(caption));
  return caption === address ? anchor : [anchor, " (", h("span", { class: "muted" }, foreign(oneLine(address, 300))), ")"];
}
