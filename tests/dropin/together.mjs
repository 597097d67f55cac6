/**
 * Many conversations: each once with the provider itself and once with the program in between; two hundred at once;
 * clients that go away; and two keys whose tools have the same names.
 */

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { comparable, generated, hold, lists } from "./generated.mjs";
import { asking } from "./model.mjs";
import { KEY } from "./provider.mjs";
import { Random } from "./random.mjs";
import { Server, until } from "./server.mjs";
import { conversation } from "./ways.mjs";

const CONVERSATIONS = Number(process.env.DROPIN_CONVERSATIONS ?? 200);
const SOAK_S = Number(process.env.DROPIN_SOAK_S ?? 20);
/** The operating system and the allocator keep some of what was freed. */
const GROWTH_MB = 64;

/** Runs `work` on each of the items, `width` at a time. */
async function several(items, width, work) {
  const left = [...items];
  const one = async () => {
    while (left.length > 0) await work(left.shift());
  };
  await Promise.all(Array.from({ length: width }, one));
}

async function sameWithAndWithout({ provider, server, tools }) {
  const catalogs = lists(tools, 4, 150);
  const seeds = Array.from({ length: CONVERSATIONS }, (_, seed) => seed);
  let [requests, searches] = [0, 0];
  await several(seeds, 4, async (seed) => {
    const one = generated(seed, catalogs);
    const direct = await hold(one, provider.url);
    provider.forget(one.name);
    const through = await hold(one, (server ?? provider).url);
    assert.deepEqual(comparable(through), comparable(direct), `seed ${seed}, ${one.way}`);
    const rounds = provider.conversation(one.name);
    requests += rounds.length;
    searches += rounds.filter(({ round }) => round === "search").length;
    assert(!server || rounds.every((round) => round.tools.length < 100), `seed ${seed}: tools were not deferred`);
    provider.forget(one.name);
  });
  assert(!server || searches > CONVERSATIONS / 2, `only ${searches} searches`);
  return `${CONVERSATIONS} conversations, ${requests} requests, of them ${searches} searches`;
}

async function manyAtOnce({ provider, server, tools }) {
  const catalogs = lists(tools, 4, 150);
  const url = (server ?? provider).url;
  const all = Array.from({ length: 200 }, (_, index) => generated(10_000 + index, catalogs));
  const before = server?.held();
  const messages = await Promise.all(all.map((one) => hold(one, url)));
  const busy = server?.held();
  for (const [index, one] of all.entries()) {
    provider.forget(one.name);
    const text = JSON.stringify(comparable(messages[index]));
    for (const said of one.turns.flatMap((turn) => [...turn.matchAll(/"(?:answer|say)":("(?:[^"\\]|\\.)*")/g)])) assert(text.includes(said[1].slice(1, -1)), `${one.name} lacks ${said[1]}`);
    // Alone, it goes as it went among the others.
    if (index % 10 === 0) assert.deepEqual(comparable(messages[index]), comparable(await hold(one, provider.url)), one.name);
    provider.forget(one.name);
  }
  return server ? figures(before, busy, await settled({ provider, server }, before)) : "";
}

/** Waits until connections are closed; those that are kept for the next request, the provider closes. */
async function settled({ provider, server }, before) {
  const spare = 40;
  provider.server.closeIdleConnections();
  await until(() => server.held().descriptors <= before.descriptors + spare, 20_000).catch(() => {});
  const after = server.held();
  assert(after.descriptors <= before.descriptors + spare, `descriptors: ${before.descriptors} before, ${after.descriptors} after`);
  return after;
}

const figures = (...held) => `${held.map(({ megabytes }) => megabytes).join(", ")} MB and ${held.map(({ descriptors }) => descriptors).join(", ")} descriptors before, while and after`;

async function goneAway({ provider, server, tools }) {
  const catalogs = lists(tools, 4, 150);
  const url = (server ?? provider).url;
  const end = Date.now() + SOAK_S * 1000;
  const [gone, random] = [provider.gone, new Random("away")];
  let [number, left, whole, before, most] = [20_000, 0, 0, null, null];
  const client = async () => {
    while (Date.now() < end) {
      const one = generated(number++, catalogs);
      const leaving = new AbortController();
      // Most leave at some moment; the others stay to the end.
      const timer = random.chance(0.9) && setTimeout(() => leaving.abort(), random.below(random.pick([50, 400, 2_000])));
      one.turns = one.turns.map((turn) => turn.replace('"conversation"', '"slowly":3,"conversation"'));
      try {
        await hold(one, url, { options: { fetch: (address, request) => fetch(address, { ...request, signal: leaving.signal }) } });
        whole += 1;
      } catch (error) {
        if (!leaving.signal.aborted) throw error;
        left += 1;
      }
      clearTimeout(timer);
      provider.forget(one.name);
      const now = server?.held();
      if (now && (!most || now.megabytes > most.megabytes)) most = now;
    }
  };
  // What is kept for many conversations is there after some of the time.
  const measured = pause(SOAK_S * 300).then(() => (before = server?.held()));
  await Promise.all([measured, ...Array.from({ length: 24 }, client)]);
  assert(left > SOAK_S && whole > 0, `${left} clients went away, ${whole} stayed`);
  // Whoever went away is told to the provider: nothing is left open there.
  await until(() => provider.open === 0, 10_000);
  if (!server) return `${left} went away, ${whole} stayed`;
  assert(provider.gone > gone, "the provider was not told that clients went away");
  const after = await settled({ provider, server }, { ...before, descriptors: 20 });
  assert(after.megabytes <= before.megabytes + GROWTH_MB, figures(before, most, after));
  return `${left} went away and ${whole} stayed in ${SOAK_S} s: ${figures(before, most, after)}`;
}

/** The same names, other tools, and the very same words. */
async function twoKeys({ provider, tools }) {
  const server = await Server.start(provider.url, {
    environment: { TOOLSCOUT_LLM_KEY: KEY },
    keys: [["--scope", "llm", "--catalogs", "*"], ["--scope", "llm", "--catalogs", "*"]],
  });
  const owners = ["ada", "bo"];
  const seen = [];
  provider.watch = (text) => seen.push(text);
  try {
    for (const way of ["chat.completions.create", "responses.create, stream", "messages.stream"]) {
      const turns = ["first", "second"].map((answer) => {
        const { name, need } = tools[3];
        return asking("Please.", { steps: [{ calls: [{ name, arguments: { id: answer, notes: "-" }, need }] }], answer });
      });
      const answers = await Promise.all(owners.map((owner, index) => {
        const own = tools.slice(0, 150).map((tool) => ({ ...tool, description: `${tool.description} Belongs to ${owner}.` }));
        return conversation(way, server.url, own, server.keys[index]).answers(turns);
      }));
      assert.deepEqual(answers[0], answers[1]);
    }
    for (const text of seen) {
      assert(!/tsk_/.test(text), "a key of ours came to the provider");
      const owned = owners.filter((owner) => text.includes(`Belongs to ${owner}.`));
      assert(owned.length <= 1, "one client's tools came among another's");
    }
    const shown = seen.filter((text) => text.includes("Belongs to")).length;
    assert(shown > 0 && seen.length > shown, `${shown} of ${seen.length} requests had found tools`);
    const refused = conversation("chat.completions.create", server.url, tools, KEY).answers([asking("Please.", {})]);
    await assert.rejects(refused, { status: 401 });
    return `${seen.length} requests`;
  } finally {
    provider.watch = null;
    await server.end();
  }
}

export const together = {
  "the same with and without": sameWithAndWithout,
  "200 conversations at once": manyAtOnce,
  "clients go away": goneAway,
};
export const leaks = { "two keys, the same names": twoKeys };
