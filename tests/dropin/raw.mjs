/** The parts of a JSON text as they were written, for comparing what was sent byte for byte. */

/** The members of an object: each key with its value's text. */
export function rawMembers(text) {
  const members = new Map();
  let at = skipSpace(text, 0);
  if (text[at] !== "{") return members;
  for (at = skipSpace(text, at + 1); text[at] === '"'; at = skipSpace(text, at + 1)) {
    const keyEnd = endOfString(text, at);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = endOfValue(text, start);
    members.set(JSON.parse(text.slice(at, keyEnd)), text.slice(start, end));
    at = skipSpace(text, end);
    if (text[at] !== ",") break;
  }
  return members;
}

/** The elements of an array, each as its text. */
export function rawElements(text) {
  const elements = [];
  let at = skipSpace(text, 0);
  if (text[at] !== "[") return elements;
  for (at = skipSpace(text, at + 1); text[at] !== "]"; at = skipSpace(text, at + 1)) {
    const end = endOfValue(text, at);
    elements.push(text.slice(at, end));
    at = skipSpace(text, end);
    if (text[at] !== ",") break;
  }
  return elements;
}

function skipSpace(text, from) {
  let at = from;
  while (" \n\r\t".includes(text[at]) && at < text.length) at += 1;
  return at;
}

function endOfString(text, start) {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** The text was parsed before, so that brackets match. */
function endOfValue(text, start) {
  if (text[start] === '"') return endOfString(text, start);
  let depth = 0;
  let at = start;
  for (; at < text.length; at += 1) {
    const letter = text[at];
    if (letter === '"') at = endOfString(text, at) - 1;
    else if (letter === "{" || letter === "[") depth += 1;
    else if (letter === "}" || letter === "]") {
      if (depth === 0) break;
      depth -= 1;
    } else if (depth === 0 && (letter === "," || " \n\r\t".includes(letter))) break;
    if (depth === 0 && (letter === "}" || letter === "]")) return at + 1;
  }
  return at;
}
