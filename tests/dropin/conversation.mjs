/** A conversation of four questions over five hundred tools, and what must have come to the provider of it. */

import assert from "node:assert/strict";
import { asking } from "./model.mjs";

/** What was found and the search; all are five hundred. */
const MOST_SHOWN = 60;

const SEARCHED = ["search call answer", "search call answer", "answer", "call answer"].join(" ");
const DIRECT = SEARCHED.replaceAll("search ", "");

/** What a client's program makes of a call. */
export function call(name, given) {
  return `${name}(${Object.values(given).join(", ")})`;
}

/**
 * The questions, and the answers to them. The last one needs again what the first one found.
 *
 * @param {boolean} reports whether every text is an object, as a client that parses them asks for
 */
export function questions(tools, conversation, reports = false) {
  const wanted = (name, given) => ({ name, arguments: given, need: tools.find((tool) => tool.name === name).need });
  const issue = wanted("code_create_issue", { title: "Größe falsch", notes: 'says "no" 🙂' });
  const alert = wanted("monitor_list_alert", { page: 2, status: "open" });
  const mail = wanted("mail_create_message", { title: "Alerts", notes: "There are some." });
  const again = wanted("code_create_issue", { title: "Another", notes: "as well" });
  const asked = [
    ["Please open an issue.", [{ ...(!reports && { say: "Let me look." }), calls: [issue] }], "It is open."],
    ["Which alerts are there? Write them to Ada.", [{ calls: [alert, mail] }], "Sent."],
    ["Thank you.", [], "You are welcome."],
    ["Open another issue.", [{ calls: [again] }], "Also open."],
  ];
  return asked.map(([question, steps, says], index) => {
    const report = { title: says, count: index };
    const results = steps.flatMap(({ calls }) => calls).map((made) => call(made.name, made.arguments));
    const plain = results.length > 0 ? `${says} I saw: ${results.join("; ")}` : says;
    const script = { conversation, steps, answer: reports ? report : says };
    return { question: asking(question, script), answer: reports ? JSON.stringify(report) : plain };
  });
}

/** Checks the rounds of such a conversation; returns how many tools were shown at most. */
export function checkRounds({ provider, server }, conversation) {
  const requests = provider.conversation(conversation);
  assert.equal(requests.map(({ round }) => round).join(" "), server ? SEARCHED : DIRECT, conversation);
  const shown = Math.max(...requests.map((request) => request.tools.length));
  assert(!server || shown <= MOST_SHOWN, `${conversation}: ${shown} tools were shown`);
  return shown;
}
