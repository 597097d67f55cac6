// What is passed without types, or against them.

/** Longest value in a message, in characters. */
const MOST_SHOWN = 60;

/** The options of a method, and what each may be, such as `string or URL`; `any` is checked elsewhere. */
export type Known = Readonly<Record<string, string>>;

/** Throws where an option is not known, so that a misspelt one is noticed, or of a wrong type. */
export function checkOptions(method: string, options: object, known: Known): void {
  check("options", options, "object");
  for (const [name, value] of Object.entries(options)) {
    const expected = Object.hasOwn(known, name) ? known[name] : undefined;
    if (expected === undefined) {
      const names = Object.keys(known).join(", ");
      throw new TypeError(`${method} has no option ${JSON.stringify(name)}; it has ${names}`);
    }
    if (value !== undefined) check(name, value, expected);
  }
}

/** Throws where an argument is of a wrong type. */
export function check(what: string, value: unknown, expected: string): void {
  const found = value instanceof URL ? "URL" : kind(value);
  if (expected === "any" || expected.split(" or ").includes(found)) return;
  const article = expected.startsWith("o") ? "an" : "a";
  throw new TypeError(`${what} must be ${article} ${expected}, not ${found}${shown(value)}`);
}

/** A text or a number in a message; other values may be very long. */
function shown(value: unknown): string {
  if (!["string", "number", "boolean"].includes(typeof value)) return "";
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return `: ${text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text}`;
}

/** One text, or several. */
export function texts(what: string, value: string | readonly string[]): string[] {
  if (typeof value === "string") return [value];
  if (!Array.isArray(value)) throw wrong(what, value);
  const several = value as readonly unknown[];
  for (const text of several) {
    if (typeof text !== "string") throw wrong(what, text);
  }
  return [...several] as string[];
}

/** The texts of a part of a filter, which may be left out. */
export function someTexts(what: string, value?: string | readonly string[]): string[] | undefined {
  return value === undefined ? undefined : texts(what, value);
}

function wrong(what: string, value: unknown): TypeError {
  return new TypeError(`${what} must be a string or a list of strings, not ${kind(value)}${shown(value)}`);
}

export function kind(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}
