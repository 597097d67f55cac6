/** What the key of this tab may do. What it may not do is not offered. */

import { call } from "./api.js";

/** Without an answer everything is offered; the server refuses what is not allowed. */
const EVERYTHING = { may: () => true, operates: true };

let known = null;
addEventListener("key", () => { known = null; });

/**
 * @typedef {{may: (scope: string) => boolean, operates: boolean}} Allowed `operates` says whether it may see what belongs to no
 *   catalog: figures, the audit log, keys
 * @returns {Promise<Allowed>}
 */
export function permissions() {
  known ??= call("v1/key", { inBackground: true }).then(
    ({ scopes, operates }) => ({ may: (scope) => scopes.includes(scope), operates }),
    () => EVERYTHING,
  );
  return known;
}
