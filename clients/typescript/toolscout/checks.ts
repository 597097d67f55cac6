// What is passed without types, or against them.

/** Throws where an option is not known, so that a misspelt one is noticed. */
export function checkOptions(method: string, options: object, known: readonly string[]): void {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new TypeError(`${method} has no option ${JSON.stringify(name)}; it has ${known.join(", ")}`);
    }
  }
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
  return new TypeError(`${what} must be a string or a list of strings, not ${kind(value)}`);
}

export function kind(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}
