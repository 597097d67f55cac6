/** A stream of server-sent events. */

/** More than any event has. */
const MOST_CHARACTERS = 8_000_000;

/**
 * The events of an answer, as they come.
 * @param {Response} response
 * @yields {object} the JSON of an event
 */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    if (rest.length > MOST_CHARACTERS) throw new Error("an event without an end");
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = dataOf(block);
      if (data !== "") yield JSON.parse(data);
    }
  }
}

/** The data of an event. Comments, which keep the connection alive, have none. */
function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trimStart()).join("\n");
}
