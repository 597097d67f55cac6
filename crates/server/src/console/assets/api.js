/** The API of this server. */

import { answered, lost } from "./connection.js";

const STORED_KEY = "toolscout.key";
/** How often a request is sent again while the server opens its catalogs, once a second. */
const MOST_STARTING = 120;

/** An error of the API, or of the way to it. */
class Failure extends Error {
  /** @param {number} status 0 where there was no answer */
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.items = error.items ?? [];
    this.requestId = error.request_id;
  }
}

/** The key of this tab, if it has one. It is forgotten with the tab. */
export const key = {
  read: () => sessionStorage.getItem(STORED_KEY) ?? "",
  store: (value) => {
    sessionStorage.setItem(STORED_KEY, value);
    dispatchEvent(new Event("key"));
  },
  forget: () => {
    sessionStorage.removeItem(STORED_KEY);
    dispatchEvent(new Event("key"));
  },
};

/**
 * Sends a request and reads its answer.
 * @param {string} path below the root, with its parts encoded
 * @param {Options} [options]
 * @returns {Promise<any>} the JSON of the answer; null without a body
 * @throws {Failure}
 */
export async function call(path, options = {}) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

/**
 * Sends a request. Where a key is needed it is asked for, and the request is sent again.
 * @typedef {{method?: string, json?: unknown, body?: Blob, type?: string, accept?: string, prefer?: string, signal?: AbortSignal, inBackground?: boolean}} Options
 *   without a usable key, a request in the background fails, and nobody is asked for one
 * @param {string} path below the root, with its parts encoded
 * @param {Options} options
 * @returns {Promise<Response>} an answer of success
 * @throws {Failure}
 */
export async function request(path, options) {
  for (let starting = 0; ; ) {
    const sent = key.read();
    const response = await send(path, options, sent);
    if (response.ok) return response;
    const failure = await failureOf(response);
    if (response.status === 401 && !options.inBackground) await anotherKey(sent, failure, options.signal);
    else if (failure.code === "not_ready" && starting < MOST_STARTING) {
      starting += 1;
      await pause(1000, options.signal);
    } else throw failure;
  }
}

async function send(path, { method = "GET", json, body, type, accept = "application/json", prefer, signal }, sentKey) {
  const headers = new Headers({ Accept: accept });
  if (sentKey) headers.set("Authorization", `Bearer ${sentKey}`);
  if (json !== undefined) headers.set("Content-Type", "application/json");
  if (type) headers.set("Content-Type", type);
  if (prefer) headers.set("Prefer", prefer);
  const content = json === undefined ? body : JSON.stringify(json);
  try {
    const response = await fetch(path, { method, headers, body: content, signal, cache: "no-store" });
    answered();
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Failure(0, { code: "unreachable", message: "The server does not answer." });
  }
}

async function failureOf(response) {
  try {
    return new Failure(response.status, (await response.json()).error);
  } catch {
    const message = `The server answered ${response.status} without a reason.`;
    return new Failure(response.status, { code: "unreadable", message });
  }
}

let asking = null;

/** Dialogs are loaded when the first one is needed. */
const askForKey = async (failure) => (await import("./dialog.js")).askForKey(failure);

/** Asks for a key, once for all requests that wait for one. */
async function anotherKey(refused, failure, signal) {
  // Another request may have got one meanwhile.
  if (key.read() !== refused) return;
  asking ??= askForKey(failure).finally(() => { asking = null; });
  const given = await asking;
  signal?.throwIfAborted();
  if (!given) throw failure;
  key.store(given);
}

/** Waits, unless it is no longer wanted. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

/** The path of a catalog and what is below it. */
export const ofCatalog = (name, rest = "") => `v1/catalogs/${encodeURIComponent(name)}${rest}`;

/** The path of a tool. Its slash is encoded, so that no part of a name is read as `..`. */
export function ofTool(catalog, id) {
  if (/^\.{1,2}$/u.test(id)) {
    throw new Failure(0, { code: "name", message: `A browser cannot ask for a tool named ${id}; the command line can.` });
  }
  return ofCatalog(catalog, `/tools/${encodeURIComponent(id)}`);
}

/** True for the end of a request that nobody waits for any more. */
export const isAbort = (error) => error.name === "AbortError";
