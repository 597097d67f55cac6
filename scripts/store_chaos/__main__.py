"""Several nodes over a primary with a hot standby, while everything dies: what of the promises holds?

usage: python3 scripts/store_chaos [--minutes M] [--seed S]

Three servers share a store. Clients write and search all the time. Nodes are killed at random and started again, one is
paused, one is cut off from the database, the primary is killed and the standby promoted, and the old primary comes back.
Prints what was counted, and ends with 1 if an acknowledged write was lost, an answer mixed two generations, nodes
differed in the end, or one panicked. The program is target/release/toolscout, or what TOOLSCOUT names; PostgreSQL is what
TOOLSCOUT_TEST_POSTGRES names, or scripts/postgres.sh installs.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "chaos"))

from clients import ALL_HITS, Ask, Figures, append_tools, replace_editions, search_editions
from nodes import Node
from postgres import DATABASE, USER, Postgres
from program import binary
from proxy import Proxy

NODES = 3
APPENDERS, SEARCHERS = 3, 3
CATALOGS = ["edition_a", "edition_b"]
# Longest pause and cut; in a short run a share of it.
PAUSE_S, CUT_S = 30, 60
BETWEEN_KILLS_S = (4, 12)
SHOWN = 5


class Cluster:
    """A primary, its standby, and the nodes. The last node reaches both over proxies."""

    def __init__(self, folder):
        self.primary = Postgres.primary()
        self.standby = self.primary.standby()
        self.proxies = [Proxy(server.port) for server in (self.primary, self.standby)]
        ports = [[self.primary.port, self.standby.port]] * (NODES - 1) + [[proxy.port for proxy in self.proxies]]
        self.nodes = [Node(f"node{n}", folder / f"node{n}", store(ports[n])) for n in range(NODES)]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_ready()

    def close(self):
        for part in [*self.nodes, *self.proxies, self.primary, self.standby]:
            part.close()


def store(ports):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgres://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write"


class Events:
    """What is done to the cluster, with when it was done."""

    def __init__(self, cluster, choice, seconds):
        self.cluster, self.random, self.seconds = cluster, choice, seconds
        self.begun = time.monotonic()
        self.kills, self.told, self.failures = 0, [], []

    def tell(self, what):
        self.told.append(what)
        print(f"{time.monotonic() - self.begun:6.1f} s  {what}", flush=True)

    def run(self, ended):
        """The great events in their order, and kills between them."""
        share = self.seconds / 10
        pause, cut = min(PAUSE_S, 1.5 * share), min(CUT_S, 2 * share)
        plan = [
            (1 * share, lambda: self.cut_off(cut, ended)),
            (4 * share, lambda: self.pause(pause, ended)),
            (6 * share, lambda: self.fail_over(ended)),
            (8.5 * share, self.return_of_the_old_primary),
        ]
        killer = threading.Thread(target=self.guarded, args=(self.kill_nodes, ended))
        killer.start()
        for at, event in plan:
            ended.wait(max(0, self.begun + at - time.monotonic()))
            self.guarded(event)
        killer.join()

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            self.failures.append(f"{type(error).__name__}: {error}")

    def kill_nodes(self, ended):
        while not ended.wait(self.random.uniform(*BETWEEN_KILLS_S)):
            node = self.random.choice(self.cluster.nodes)
            # One that is paused or starting stays as it is.
            if not node.changing.acquire(blocking=False):
                continue
            with_lock = node.changing
            try:
                node.kill()
                self.kills += 1
                ended.wait(self.random.uniform(0, 2))
                node.start()
                node.wait_until_ready()
            finally:
                with_lock.release()

    def cut_off(self, seconds, ended):
        self.tell(f"{self.cluster.nodes[-1].name} is cut off from the database for {seconds:.0f} s")
        for proxy in self.cluster.proxies:
            proxy.cut()
        ended.wait(seconds)
        for proxy in self.cluster.proxies:
            proxy.mend()
        self.tell("it is connected again")

    def pause(self, seconds, ended):
        node = self.cluster.nodes[0]
        with node.changing:
            self.tell(f"{node.name} is paused for {seconds:.0f} s")
            node.pause()
            ended.wait(seconds)
            node.go_on()
        self.tell("it goes on")

    def fail_over(self, ended):
        self.tell("the primary is killed")
        self.cluster.primary.kill()
        ended.wait(3)
        self.cluster.standby.promote()
        self.tell("the standby is promoted")

    def return_of_the_old_primary(self):
        # It would wait for its standby otherwise, and take no writes anyway.
        settings = self.cluster.primary.data / "postgresql.auto.conf"
        lines = settings.read_text().splitlines()
        kept = [line for line in lines if "synchronous_standby_names" not in line]
        settings.write_text("\n".join(kept) + "\n")
        self.cluster.primary.start()
        self.tell("the old primary is back, and takes writes")


def main():
    arguments = read_arguments()
    # So that everything that runs is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not binary().exists():
        sys.exit(f"{binary()} is not there: cargo build --release, or name another program with TOOLSCOUT")
    print(f"seed {arguments.seed}, {binary()}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="toolscout-store-chaos-"))
    cluster = Cluster(folder)
    try:
        problems = run(cluster, arguments)
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    for problem in problems:
        print(f"broken: {problem}", file=sys.stderr)
    sys.exit(bool(problems))


def read_arguments():
    parser = argparse.ArgumentParser(prog="scripts/store_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long, 10 by default")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return parser.parse_args()


def run(cluster, arguments):
    """What of the promises is broken."""
    seconds = arguments.minutes * 60
    ended = threading.Event()
    figures = Figures()
    make_catalogs(cluster, arguments)
    events = Events(cluster, random.Random(f"{arguments.seed} events"), seconds)
    threads = clients(cluster, figures, arguments.seed, ended)
    threads.append(threading.Thread(target=events.run, args=(ended,)))
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        time.sleep(seconds)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    elapsed = time.monotonic() - begun
    problems = [*figures.lost, *figures.mixed, *events.failures]
    problems += look(cluster, figures)
    for node in cluster.nodes:
        problems += [f"{node.name} panicked: {line}" for line in node.panics()]
    print_table(figures, events, elapsed, begun)
    return problems


def make_catalogs(cluster, arguments):
    ask = Ask(cluster.nodes, random.Random(f"{arguments.seed} catalogs"))
    never = threading.Event()
    for name in ["log", *CATALOGS]:
        ask.until_answered("PUT", f"/v1/catalogs/{name}", {}, 10, never)


def clients(cluster, figures, seed, ended):
    def client(work, name, *options):
        ask = Ask(cluster.nodes, random.Random(f"{seed} {name}"))
        return threading.Thread(target=work, args=(ask, figures, *options, ended), name=name)

    threads = [client(append_tools, f"append {number}", number) for number in range(APPENDERS)]
    threads += [client(replace_editions, f"replace {catalog}", catalog) for catalog in CATALOGS]
    threads += [client(search_editions, f"search {number}", CATALOGS) for number in range(SEARCHERS)]
    return threads


def look(cluster, figures):
    """What is wrong with the nodes in the end: each has every acknowledged write, and all have the same."""
    problems = []
    ask = Ask(cluster.nodes, random.Random(0))
    seen = []
    for node in cluster.nodes:
        node.wait_until_ready()
        try:
            names = all_names(ask, node, figures.newest.get("log", 0))
            lacking = sorted(figures.acknowledged - names)
            if lacking:
                problems.append(f"{node.name} lacks {len(lacking)} acknowledged writes: {lacking[:SHOWN]}")
            seen.append((names, [editions(ask, node, catalog, figures) for catalog in CATALOGS]))
        except LookupError as error:
            problems.append(f"{node.name}: {error}")
    if any(other != seen[0] for other in seen[1:]):
        problems.append("the nodes do not have the same tools, hits or scores in the end")
    return problems


def reached(ask, node, catalog, generation, query):
    end = time.monotonic() + 60
    answer = None
    while time.monotonic() < end:
        body = query | {"min_generation": generation}
        answer = ask.once(node, "POST", f"/v1/catalogs/{catalog}/search", body, 10)
        if answer is not None and answer[0] == 200:
            return answer[1]
        time.sleep(0.2)
    raise LookupError(f"{catalog} does not reach generation {generation}: {answer}")


def all_names(ask, node, generation):
    reached(ask, node, "log", generation, {"query": "entry"})
    names, cursor = set(), ""
    while True:
        answer = ask.once(node, "GET", f"/v1/catalogs/log/tools?limit=1000{cursor}", None, 30)
        if answer is None or answer[0] != 200:
            raise LookupError(f"the tools cannot be listed: {answer}")
        names |= {tool["name"] for tool in answer[1]["tools"]}
        if not answer[1].get("next_cursor"):
            return names
        cursor = f"&cursor={answer[1]['next_cursor']}"


def editions(ask, node, catalog, figures):
    query = {"query": "part of the edition", "k": ALL_HITS}
    answer = reached(ask, node, catalog, figures.newest.get(catalog, 0), query)
    hits = [(hit["id"], hit["score"], hit["description"]) for hit in answer["hits"]]
    return answer["generation"], hits


def print_table(figures, events, elapsed, begun):
    times = [begun, *sorted(figures.answered_at)]
    gaps = [after - before for before, after in zip(times, times[1:])]
    rows = [
        ("minutes", f"{elapsed / 60:.1f}"),
        ("nodes killed", events.kills),
        ("acknowledged writes", figures.writes),
        ("writes that another node had to take", figures.refused_writes),
        ("acknowledged writes that were not found", len(figures.lost)),
        ("answers that mix two generations", len(figures.mixed)),
        ("searches", figures.searches),
        ("searches that no node answered", figures.search_errors),
        ("times that the next node was asked", figures.search_retries),
        ("longest time without an answered search", f"{max(gaps, default=0):.2f} s"),
        ("a search with all its tries, p50 / p99 / longest", percentiles(figures.search_s)),
        ("a write with all its tries, p50 / p99 / longest", percentiles(figures.write_s)),
        ("acknowledged until found on another node, p50 / p99 / longest", percentiles(figures.visible_s)),
    ]
    print("| what | figure |\n|---|---|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


def percentiles(seconds):
    ordered = sorted(seconds)
    if not ordered:
        return "none"
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return " / ".join(f"{value * 1000:.0f} ms" for value in (at(0.5), at(0.99), ordered[-1]))


main()
