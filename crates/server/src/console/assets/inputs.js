/** The arguments of a tool as fields to fill in. */

import { h, replace } from "./dom.js";
import { isObject, requiredOf, resolved, typeOf } from "./schema.js";
import { foreign, oneLine } from "./text.js";

/** More fields than anybody fills in are given as JSON. */
const MOST_FIELDS = 40;
const MOST_CHOICES = 200;

/** What is wrong with a field. */
class Wrong extends Error {
  constructor(message, input) {
    super(message);
    this.input = input;
  }
}

/**
 * Fields for the arguments of a schema, and for all of them as JSON.
 * @returns {{element: HTMLElement, read: () => object}} `read` throws what is wrong with a field
 */
export function inputsOf(schema) {
  const fields = fieldsOf(schema);
  const box = h("div", { class: "inputs" });
  const whole = h("textarea", { class: "code", rows: 8, spellcheck: "false", "aria-label": "Arguments as JSON" });
  let isWhole = fields === null;
  const read = () => (isWhole ? readJson(whole, "The arguments", isObject, "an object") : readFields(fields));
  const show = () => {
    const toggle = fields !== null && h("button", { type: "button", class: "link", onclick: change }, isWhole ? "As fields" : "As JSON");
    replace(box, isWhole ? whole : fields.length > 0 ? fields.map(({ element }) => element) : h("p", { class: "muted" }, "It takes no arguments."), h("div", {}, toggle));
  };
  const change = () => {
    if (!isWhole) whole.value = JSON.stringify(soFar(fields), null, 2);
    isWhole = !isWhole;
    show();
    box.querySelector("textarea, input, select")?.focus();
  };
  if (isWhole) whole.value = "{}";
  show();
  return { element: box, read };
}

/** A field for each property; null for a schema that has no such list. */
function fieldsOf(schema) {
  const known = resolved(schema, schema);
  const properties = isObject(known.properties) ? Object.entries(known.properties) : [];
  const isOpen = ["anyOf", "oneOf", "allOf"].some((name) => Array.isArray(known[name]));
  if (properties.length > MOST_FIELDS || isOpen) return null;
  const required = requiredOf(known);
  return properties.map(([name, property], index) => field(schema, name, resolved(schema, property), required.has(name), index));
}

function field(root, name, schema, isRequired, index) {
  const { input, get } = control(schema);
  const id = `argument-${index}`;
  input.id = id;
  if (isRequired) input.setAttribute("aria-required", "true");
  const described = typeof schema.description === "string" && schema.description !== "";
  if (described) input.setAttribute("aria-describedby", `${id}-hint`);
  const element = h("div", { class: "field" },
    h("label", { for: id }, h("span", { class: "name" }, foreign(oneLine(name))), " ", h("span", { class: "type" }, foreign(oneLine(typeOf(root, schema)))), isRequired && " ", isRequired && h("span", { class: "badge accent" }, "required")),
    input,
    described && h("small", { id: `${id}-hint`, class: "muted" }, foreign(oneLine(schema.description, 240))));
  return { name, element, isRequired, input, get };
}

/**
 * The control for a schema; `get` gives the value, or undefined where nothing is given. A default is shown and not filled in: it
 * is what the server takes for what is not sent.
 */
function control(schema) {
  const type = Array.isArray(schema.type) ? null : schema.type;
  if (Array.isArray(schema.enum) && schema.enum.length <= MOST_CHOICES) return choice(schema.enum, schema);
  if (type === "boolean") return choice([true, false], schema);
  if (type === "integer" || type === "number") return number(schema, type);
  if (type === "string") return text(schema);
  return json(schema);
}

const written = (value) => oneLine(typeof value === "string" ? value : JSON.stringify(value), 80);

/** What the server takes for a value that is not given, in words. */
function unlessGiven(schema) {
  return schema.default === undefined || schema.default === null ? "" : `unless given: ${written(schema.default)}`;
}

function choice(values, schema) {
  const input = h("select", {}, h("option", { value: "" }, unlessGiven(schema)), values.map((value, index) => h("option", { value: String(index) }, written(value))));
  return { input, get: () => (input.value === "" ? undefined : values[Number(input.value)]) };
}

function number(schema, type) {
  const input = h("input", { type: "text", inputmode: type === "integer" ? "numeric" : "decimal", autocomplete: "off", placeholder: unlessGiven(schema) });
  const get = () => {
    const given = input.value.trim();
    if (given === "") return undefined;
    const value = Number(given);
    if (!Number.isFinite(value) || (type === "integer" && !Number.isInteger(value))) throw new Wrong(`is ${given}, and must be ${type === "integer" ? "a whole number" : "a number"}`, input);
    // Larger ones would be sent as other numbers.
    if (type === "integer" && !Number.isSafeInteger(value)) throw new Wrong("is larger than a browser can send exactly", input);
    return value;
  };
  return { input, get };
}

/** Nothing is no text; an empty text is given as JSON. */
function text(schema) {
  const input = h("textarea", { rows: 1, autocomplete: "off", spellcheck: "false", placeholder: unlessGiven(schema) });
  return { input, get: () => (input.value === "" ? undefined : input.value) };
}

function json(schema) {
  const form = schema.type === "array" ? "[…]" : schema.type === "object" ? "{…}" : "JSON";
  const input = h("textarea", { class: "code", rows: 2, spellcheck: "false", placeholder: unlessGiven(schema) || form });
  const isRight = schema.type === "array" ? Array.isArray : schema.type === "object" ? isObject : () => true;
  const wanted = schema.type === "array" ? "a list, as [1, 2]" : "an object, as {\"a\": 1}";
  return { input, get: () => (input.value.trim() === "" ? undefined : readJson(input, "", isRight, wanted)) };
}

function readJson(input, name, isRight, wanted) {
  let value;
  try {
    value = JSON.parse(input.value);
  } catch (error) {
    throw new Wrong(`${name} is not valid JSON: ${error.message}`.trim(), input);
  }
  if (!isRight(value)) throw new Wrong(`${name} must be ${wanted}`.trim(), input);
  return value;
}

function readFields(fields) {
  for (const { input } of fields) input.removeAttribute("aria-invalid");
  const given = [];
  for (const { name, isRequired, input, get } of fields) {
    try {
      const value = get();
      if (value !== undefined) given.push([name, value]);
      else if (isRequired) throw new Wrong("is required", input);
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      throw new Wrong(`${oneLine(name, 80)} ${error.message}`, input);
    }
  }
  // Its entries are its own, whatever their names.
  return Object.fromEntries(given);
}

/** What is given and right, to go on with as JSON. */
function soFar(fields) {
  const given = [];
  for (const { name, get } of fields) {
    try {
      const value = get();
      if (value !== undefined) given.push([name, value]);
    } catch {
      // It stays in its field.
    }
  }
  return Object.fromEntries(given);
}
