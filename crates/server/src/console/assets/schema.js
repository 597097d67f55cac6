/** The JSON Schema of a tool's arguments as a form to read. */

import { h } from "./dom.js";
import { foreign, long, oneLine } from "./text.js";

/** Schemas may be deep, wide, and refer to themselves. */
const DEEPEST = 6;
const MOST_FIELDS = 200;
const MOST_VALUES = 24;
const BOUNDS = ["format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "multipleOf"];

/** The fields of an object schema. */
export function schemaForm(schema) {
  const form = { root: schema, left: MOST_FIELDS };
  const fields = fieldsOf(form, schema, 0);
  if (fields.length === 0) return h("p", { class: "muted" }, "It takes no arguments.");
  return h("div", { class: "schema" }, fields, form.left <= 0 && h("p", { class: "muted" }, `The first ${MOST_FIELDS} fields; the rest is in the JSON below.`));
}

function fieldsOf(form, given, depth) {
  const schema = resolve(form, given);
  const properties = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  const required = requiredOf(schema);
  const fields = [];
  for (const [name, property] of properties) {
    if (form.left <= 0) break;
    form.left -= 1;
    fields.push(field(form, name, resolve(form, property), required.has(name), depth));
  }
  return fields;
}

function field(form, name, schema, isRequired, depth) {
  const inner = depth < DEEPEST ? fieldsOf(form, nested(form, schema), depth + 1) : [];
  return h("div", { class: "schema-field" },
    h("div", { class: "schema-head" },
      h("span", { class: "name" }, foreign(oneLine(name))),
      h("span", { class: "type" }, foreign(oneLine(typeName(form, schema)))),
      isRequired && h("span", { class: "badge accent" }, "required")),
    typeof schema.description === "string" && schema.description && long(schema.description),
    details(schema),
    inner.length > 0 && h("div", { class: "schema-inner" }, inner));
}

/** The schema whose fields stand below a field: its own, or those of its items. */
function nested(form, schema) {
  return isObject(schema.items) ? resolve(form, schema.items) : schema;
}

/** The type of a value, in words. */
export const typeOf = (root, schema) => typeName({ root }, schema);

/** A schema within another, with its references followed. */
export const resolved = (root, schema) => resolve({ root }, schema);

/** The names of the properties that a value must have. */
export const requiredOf = (schema) => new Set(Array.isArray(schema.required) ? schema.required : []);

function typeName(form, schema, depth = 0) {
  // A list may be said to hold itself.
  if (depth > DEEPEST) return "…";
  const inner = (given, steps = 1) => typeName(form, resolve(form, given), depth + steps);
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  if (schema.type === "array") return isObject(schema.items) ? `list of ${inner(schema.items)}` : "list";
  if (typeof schema.type === "string") return schema.type;
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) return choices.slice(0, 6).map((choice) => inner(choice, 3)).join(" or ");
  return Array.isArray(schema.enum) ? "one of" : "anything";
}

function details(schema) {
  const rows = [];
  if (Array.isArray(schema.enum)) rows.push(["one of", schema.enum.slice(0, MOST_VALUES).map(written).join(", ") + (schema.enum.length > MOST_VALUES ? ", …" : "")]);
  if (schema.const !== undefined) rows.push(["always", written(schema.const)]);
  if (schema.default !== undefined) rows.push(["unless given", written(schema.default)]);
  for (const name of BOUNDS) if (schema[name] !== undefined) rows.push([name, written(schema[name])]);
  if (rows.length === 0) return null;
  return h("dl", { class: "bounds" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, foreign(value)))));
}

const written = (value) => oneLine(typeof value === "string" ? value : JSON.stringify(value) ?? "", 120);

/** A schema with its reference followed; references in a circle end after a few steps. */
function resolve(form, given) {
  let schema = given;
  for (let step = 0; step < DEEPEST && isObject(schema) && typeof schema.$ref === "string"; step += 1) {
    schema = target(form.root, schema.$ref);
  }
  return isObject(schema) ? schema : {};
}

function target(root, reference) {
  if (!reference.startsWith("#/")) return {};
  const steps = reference.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.reduce((schema, step) => (isObject(schema) && Object.hasOwn(schema, step) ? schema[step] : undefined), root);
}

export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
