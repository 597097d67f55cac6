/** The address of a view: `#/screen?name=value`. It never holds a key. */

/**
 * @typedef {{screen: string, params: URLSearchParams}} Place
 */

/** @returns {Place} */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/u, "").split("?", 2);
  return { screen: path || "search", params: new URLSearchParams(query) };
}

/** The address of a view. Empty values are left out. */
export function address(screen, values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${screen}${query ? `?${query}` : ""}`;
}

/** Goes to a view; the one before stays in the history. */
export function go(screen, values) {
  location.hash = address(screen, values);
}

/** Keeps something with this entry of the history, so that the way back finds it. */
export function remember(values) {
  history.replaceState({ ...history.state, ...values }, "");
}

/** What was kept with this entry of the history. */
export const remembered = (name) => history.state?.[name];

/** Notes the state of this view, without a new entry in the history for each letter. */
export function note(screen, values) {
  history.replaceState(null, "", address(screen, values));
}
