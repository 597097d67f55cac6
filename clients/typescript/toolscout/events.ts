// The events of an answer of the agent, and what is left of them when the connection is lost.

import type { components } from "./api_types.js";
import { ConnectionFailedError } from "./errors.js";

type AgentEvent = components["schemas"]["AgentEvent"];
type Turn = components["schemas"]["Conversation"]["turns"][number];

/** Of one event: a server that sends more is no server of ours. */
const MAX_EVENT_LENGTH = 64 << 20;

/** Reads server-sent events as they arrive. */
export class EventReader<T> {
  #rest = "";

  /** Reads on, and yields the events that have ended. */
  *feed(text: string): Generator<T, void, undefined> {
    this.#rest += text.replaceAll("\r", "");
    for (let end; (end = this.#rest.indexOf("\n\n")) >= 0; ) {
      const block = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + 2);
      // Comments keep the connection; ids count what is here counted anyway.
      const lines = block.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length > 0) yield parsed(lines.map((line) => line.slice(5)).join("\n"));
    }
    if (this.#rest.length > MAX_EVENT_LENGTH) {
      const message = `an event of the stream is longer than ${MAX_EVENT_LENGTH} characters`;
      throw new ConnectionFailedError("unreadable_answer", message);
    }
  }
}

function parsed<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    const start = JSON.stringify(text.slice(0, 100));
    const message = `an event of the stream is no JSON: ${start}`;
    throw new ConnectionFailedError("unreadable_answer", message);
  }
}

/** What was seen of a run, and so what is left of it when the connection is lost. */
export class Resumption {
  isDone = false;
  readonly conversation: string | undefined;
  #text = "";
  readonly #seen = new Map<string, number>();

  constructor(conversation: string | undefined) {
    this.conversation = conversation;
  }

  /** Notes an event. */
  seen(event: AgentEvent): void {
    const { type } = event;
    if (type === "text") {
      this.#text += event.content;
    } else if (type === "tool_search" || type === "tool_call" || type === "plan") {
      // What the model says between calls is not its answer.
      this.#text = "";
    }
    this.#seen.set(type, (this.#seen.get(type) ?? 0) + 1);
    this.isDone = type === "done";
  }

  /** What was not seen of a finished turn: steps, the rest of the text, and the end. */
  *remaining(
    conversation: string,
    turn: Turn,
    kept: AgentEvent[],
  ): Generator<AgentEvent, void, undefined> {
    const seen = new Map(this.#seen);
    for (const event of kept) {
      // Texts are kept in another form: the answer has them.
      if (["text", "thinking", "done"].includes(event.type)) continue;
      const before = seen.get(event.type) ?? 0;
      if (before === 0) yield event;
      else seen.set(event.type, before - 1);
    }
    const rest = turn.answer.startsWith(this.#text)
      ? turn.answer.slice(this.#text.length)
      : turn.answer;
    if (rest) yield { type: "text", content: rest };
    if (turn.error && !this.#seen.has("error")) {
      yield { type: "error", content: turn.error };
    }
    const { number, status, figures } = turn;
    yield { type: "done", conversation, turn: number, status, figures };
  }
}
