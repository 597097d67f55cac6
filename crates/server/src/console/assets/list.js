/** A list of any length: only the rows in sight are in the page, and pages are loaded as they are reached. */

import { isAbort } from "./api.js";
import { h, replace } from "./dom.js";
import { count, foreign, oneLine } from "./text.js";

/** Also in the style sheet. */
const ROW_PX = 50;
/** Rows drawn above and below those in sight. */
const SPARE_ROWS = 10;
/** Rows that a list without a known length shows below the loaded ones. */
const ROWS_TO_COME = 12;
/** Most rows that are read to find the row of a tool that nobody has scrolled to. */
const MOST_SOUGHT = 20_000;
/** In the place of a row that is not looked for any longer. */
const NOT_HERE = -2;
/** Most rows: more would be higher than browsers draw. */
const MOST_ROWS = 400_000;

/**
 * @typedef {{id: string, name: string, server: string, description: string}} Row
 * @typedef {(cursor: ?string, signal: AbortSignal, isFar: boolean) => Promise<{rows: Row[], cursor: ?string}>} Source a page after
 *   a cursor; a large one if many are read one after another
 */

export class ToolList {
  /** @param {(id: string) => void} open is called with the tool that is chosen */
  constructor(open) {
    this.open = open;
    this.rows = [];
    this.chosen = null;
    this.active = 0;
    this.space = h("div", { class: "list-space", role: "presentation" });
    this.element = h("div", { class: "list", role: "listbox", tabindex: "0", "aria-label": "Tools", onkeydown: (event) => this.key(event), onclick: (event) => this.click(event) }, this.space);
    this.element.addEventListener("scroll", () => {
      this.drawSoon();
      this.onscroll?.(this.element.scrollTop);
    }, { passive: true });
    // Whoever scrolls by hand is not taken elsewhere.
    for (const name of ["wheel", "touchmove"]) this.element.addEventListener(name, () => { this.sought = null; }, { passive: true });
    this.observer = new ResizeObserver(() => this.drawSoon());
    this.observer.observe(this.element);
    this.aborter = new AbortController();
  }

  stop() {
    this.aborter.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  /**
   * Begins anew with other rows.
   * @param {Source} source
   * @param {?number} expected the number of rows, where it is known
   */
  begin(source, expected) {
    this.aborter.abort();
    this.aborter = new AbortController();
    Object.assign(this, { source, expected, rows: [], cursor: null, isWhole: false, isLoading: false, failure: null, active: 0, sought: null });
    this.element.scrollTop = 0;
    this.draw();
  }

  /** Marks the tool that is shown beside the list. One that nobody chose in the list is looked for in it. */
  choose(id) {
    this.chosen = id;
    const isNear = (this.expected ?? 0) <= MOST_SOUGHT;
    this.sought = id && isNear && this.chosenRow() === -1 ? () => this.soughtRow() : null;
    this.draw();
  }

  /** Scrolls to where the list was left, once its rows are there. */
  restore(top) {
    if (!(top > 0) || top > MOST_SOUGHT * ROW_PX) return;
    const last = () => Math.floor((top + this.element.clientHeight) / ROW_PX) - 1;
    this.sought = () => (this.rows.length > last() || this.isWhole ? Math.min(last(), this.rows.length - 1) : -1);
    this.reach();
    this.draw();
  }

  /** The row of the chosen tool; -1 if it may still come. */
  soughtRow() {
    const row = this.chosenRow();
    return row === -1 && this.rows.length >= MOST_SOUGHT ? NOT_HERE : row;
  }

  chosenRow() {
    return this.rows.findIndex(({ id }) => id === this.chosen);
  }

  get length() {
    const known = this.isWhole ? this.rows.length : Math.max(this.expected ?? 0, this.rows.length + (this.expected === null ? ROWS_TO_COME : 0));
    return Math.min(known, MOST_ROWS);
  }

  drawSoon() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    const first = Math.max(Math.floor(this.element.scrollTop / ROW_PX) - SPARE_ROWS, 0);
    const last = Math.min(Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW_PX) + SPARE_ROWS, this.length);
    this.space.style.height = `${this.length * ROW_PX}px`;
    const drawn = [];
    for (let index = first; index < last; index += 1) drawn.push(this.row(index));
    replace(this.space, drawn, this.notice());
    const isActiveDrawn = this.active >= first && this.active < Math.min(last, this.rows.length);
    if (isActiveDrawn) this.element.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
    if (last > this.rows.length || this.rows.length === 0 || this.sought) this.load();
  }

  row(index) {
    const row = this.rows[index];
    const element = row ? this.tool(row, index) : h("div", { class: "row", "aria-hidden": "true" }, h("div", { class: "skeleton" }));
    element.style.top = `${index * ROW_PX}px`;
    return element;
  }

  tool(row, index) {
    return h("div", {
      class: `row${index === this.active ? " active" : ""}`, role: "option", id: `row-${index}`, "data-index": index,
      "aria-selected": String(row.id === this.chosen), "aria-posinset": index + 1, "aria-setsize": this.isWhole || this.expected !== null ? this.length : -1,
    },
    h("div", { class: "row-head" }, h("span", { class: "name" }, foreign(row.name)), " ", row.kind && h("span", { class: "badge" }, row.kind), row.server && h("span", { class: "server" }, foreign(row.server))),
    h("div", { class: "row-text" }, row.description ? foreign(row.description) : "No description"));
  }

  notice() {
    if (this.failure) return h("div", { class: "list-notice", role: "alert" }, foreign(this.failure), " ", h("button", { type: "button", class: "link", onclick: () => this.retry() }, "Try again"));
    if (this.isWhole && this.rows.length === 0) return h("div", { class: "list-notice muted" }, "No tools.");
    return null;
  }

  retry() {
    this.failure = null;
    this.draw();
  }

  /** Loads the next page; as pages come, `draw` asks for more while rows in sight are missing. */
  async load() {
    if (this.isLoading || this.isWhole || this.failure || !this.source) return;
    const { signal } = this.aborter;
    this.isLoading = true;
    try {
      const { rows, cursor } = await this.source(this.cursor, signal, this.sought !== null);
      if (signal.aborted) return;
      this.rows.push(...rows);
      this.cursor = cursor;
      this.isWhole = !cursor || this.rows.length >= MOST_ROWS;
      this.reach();
    } catch (error) {
      if (isAbort(error)) return;
      this.failure = error.message;
    }
    this.isLoading = false;
    this.draw();
    this.onload?.();
  }

  /** Goes to the row that is looked for, if it is there now. */
  reach() {
    const index = this.sought?.() ?? -1;
    if (index >= 0) this.goTo(index, false);
    else if (index === NOT_HERE || this.isWhole || this.rows.length >= MOST_ROWS) this.sought = null;
  }

  /** How many there are, as far as it is known. */
  said() {
    if (this.isWhole) return count(this.rows.length);
    if (this.sought && this.rows.length > 0) return `${count(this.rows.length)} read of ${this.expected === null ? "more" : count(this.expected)}`;
    return this.expected === null ? `${count(this.rows.length)}+` : count(this.expected);
  }

  click(event) {
    const row = event.target.closest("[data-index]");
    if (row) this.goTo(Number(row.dataset.index), true);
  }

  key(event) {
    if (event.target !== this.element) return;
    const page = Math.max(Math.floor(this.element.clientHeight / ROW_PX) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity };
    if (event.key === "End") this.goToEnd();
    else if (event.key in steps) this.goTo(this.active + steps[event.key], false);
    else if (event.key === "Enter" || event.key === " ") this.goTo(this.active, true);
    else return;
    event.preventDefault();
  }

  /** Goes to the last of all, which may have to be read first. Any other key ends that. */
  goToEnd() {
    this.sought = () => (this.isWhole ? this.rows.length - 1 : -1);
    this.reach();
    this.draw();
  }

  goTo(index, isOpened) {
    this.sought = null;
    this.active = Math.min(Math.max(index, 0), Math.max(this.rows.length - 1, 0));
    const top = this.active * ROW_PX;
    const bottom = top + ROW_PX - this.element.clientHeight;
    if (this.element.scrollTop > top) this.element.scrollTop = top;
    else if (this.element.scrollTop < bottom) this.element.scrollTop = bottom;
    this.draw();
    const row = this.rows[this.active];
    if (isOpened && row) this.open(row.id);
  }
}

/** A tool of the API as a row: the rest of it would only fill the memory. */
export const rowOf = ({ id, kind, name, server, description }) => ({ id, kind, name: oneLine(name, 120), server: oneLine(server, 80), description: oneLine(description, 200) });
