/**
 * What the provider's model does. The last message of the user says it, in JSON between << and >>:
 * - `conversation`: its name, for the checks and the records;
 * - `steps`: each with `calls` (`name`, `arguments`, and `need`, what to search for where the tool is not there) that
 *   are made at once, `say`, a text before them, `think`, and `blind` (calls tools that it was not shown), `mixed`
 *   (searches and calls in one round), `limit` (how many tools a search is to find);
 * - `answer`: its text, or an object, in the end;
 * - `fault`: what goes wrong (`kind`), in which round (`in`: search, call or answer), and how often (`times`).
 */

export function scriptOf(text) {
  const start = text.lastIndexOf("<<{");
  const end = text.lastIndexOf("}>>");
  return start < 0 || end < start ? null : JSON.parse(text.slice(start + 2, end + 1));
}

/** The text of a message with a script. */
export function asking(text, script) {
  return `${text} <<${JSON.stringify(script)}>>`;
}

/** Ours, by what it takes: a client may have a tool of that name too. */
export function searchTool(tools) {
  return tools.find(({ parameters }) => parameters?.properties?.query && parameters.properties.queries);
}

/**
 * @param {{tools: object[], messages: object[], choice: string, named?: string, parallel: boolean}} view of a request
 * @returns {{round: string, think: string, text: string, calls: {name: string, arguments: object}[]}}
 */
export function decide(view, random) {
  const asked = view.messages.findLastIndex(({ role, text }) => role === "user" && text.includes("<<{"));
  const script = asked < 0 ? {} : scriptOf(view.messages[asked].text);
  const since = view.messages.slice(asked + 1);
  const turn = new Turn(view, script, since, random);
  return { script, ...turn.next() };
}

class Turn {
  constructor(view, script, since, random) {
    this.view = view;
    this.script = script;
    this.since = since;
    this.random = random;
    this.names = new Set(view.tools.map(({ name }) => name));
    this.search = searchTool(view.tools);
    this.made = since.flatMap(({ calls }) => calls);
    this.said = since.filter(({ role }) => role === "assistant").map(({ text }) => text).join("");
  }

  next() {
    if (this.view.choice === "none") return this.answer();
    const given = new Map();
    for (const step of this.script.steps ?? []) {
      const left = step.calls.filter((call) => !this.takeMade(given, call));
      const round = left.length > 0 && this.round(step, left);
      if (round) return this.view.parallel ? round : { ...round, calls: round.calls.slice(0, 1) };
    }
    return this.answer();
  }

  /** True when the call was made; a call that is wanted twice has to be made twice. */
  takeMade(given, { name, arguments: wanted }) {
    const key = `${name} ${JSON.stringify(wanted)}`;
    const made = this.made.filter((call) => `${call.name} ${JSON.stringify(call.arguments)}` === key).length;
    const taken = given.get(key) ?? 0;
    given.set(key, taken + 1);
    return taken < made;
  }

  round(step, left) {
    const before = { think: step.think ?? "", text: step.say && !this.said.includes(step.say) ? step.say : "" };
    if (step.blind) return { round: "call", ...before, calls: left };
    const there = left.filter(({ name }) => this.names.has(name));
    const wanted = left.filter((call) => !there.includes(call) && !this.hasSearched(call.need));
    if (wanted.length > 0 && this.search && !this.view.named) {
      const searches = this.searches(wanted, step.limit);
      return { round: "search", ...before, calls: step.mixed ? [...there, ...searches] : searches };
    }
    return there.length > 0 ? { round: "call", ...before, calls: there } : null;
  }

  searches(wanted, limit) {
    const needs = [...new Set(wanted.map(({ need }) => need))];
    const { name } = this.search;
    if (needs.length > 1 && this.random.chance(0.5)) return [{ name, arguments: { queries: needs, limit } }];
    return needs.map((query) => ({ name, arguments: { query, limit } }));
  }

  hasSearched(need) {
    const searches = this.made.filter(({ name }) => name === this.search?.name);
    return searches.some(({ arguments: { query, queries } }) => query === need || queries?.includes(need));
  }

  /** With the results that it was given, so that the client sees whose they were. */
  answer() {
    const think = this.script.think ?? "";
    const { answer } = this.script;
    if (answer && typeof answer === "object") return { round: "answer", think, text: JSON.stringify(answer), calls: [] };
    const searches = new Set(this.made.filter(({ name }) => name === this.search?.name).map(({ id }) => id));
    const results = this.since.filter(({ role, id }) => role === "tool" && !searches.has(id)).map(({ text }) => text);
    const seen = results.length > 0 ? ` I saw: ${results.join("; ")}` : "";
    return { round: "answer", think, text: `${answer ?? "Done."}${seen}`, calls: [] };
  }
}
