/** Whether the server answers. Where it does not, it is asked again and again, less and less often. */

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
/** How often an open page looks whether the server is still there. */
const HEARTBEAT_MS = 15_000;

const state = { isLost: false, attempt: 0, retryAt: 0 };
const listeners = new Set();
let timer = 0;

/**
 * Calls a function whenever the state changes, with the state, and whether the server is back.
 * @returns {() => void} ends it
 */
export function onConnection(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Is called when a request got no answer. */
export function lost() {
  if (state.isLost) return;
  state.isLost = true;
  state.attempt = 0;
  retryLater();
}

/** Is called with every answer. */
export function answered() {
  if (!state.isLost) return;
  clearTimeout(timer);
  state.isLost = false;
  tell(true);
}

/** Asks at once. */
export function retryNow() {
  clearTimeout(timer);
  ask();
}

function retryLater() {
  const wait = Math.min(FIRST_WAIT_MS * 2 ** state.attempt, LONGEST_WAIT_MS);
  state.attempt += 1;
  state.retryAt = Date.now() + wait;
  timer = setTimeout(ask, wait);
  tell(false);
}

async function ask() {
  try {
    await fetch("livez", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    answered();
  } catch {
    if (state.isLost) retryLater();
    else lost();
  }
}

function tell(isBack) {
  for (const listener of listeners) listener(state, isBack);
}

setInterval(() => {
  if (!state.isLost && document.visibilityState === "visible") ask();
}, HEARTBEAT_MS);
