"""Clients behind a load balancer: each asks any node, and the next one when that does not answer."""

import json
import threading
import time
import http.client
from urllib.parse import urlsplit

# A node that is paused takes connections and answers nothing.
SEARCH_LIMIT_S = 3
WRITE_LIMIT_S = 10
# A request that no node has answered for so long is an error.
PATIENCE_S = 30
PAUSE_S = 0.05
JSON = {"Content-Type": "application/json"}
# Tools of a catalog that is replaced as a whole, and hits of a search that has to find all of them.
EDITION_TOOLS, ALL_HITS = 40, 50


class Ask:
    """Requests of one client."""

    def __init__(self, nodes, random):
        self.nodes, self.random = nodes, random

    def once(self, node, method, path, body, limit_s):
        """Status and body; None where no whole answer came."""
        connection = http.client.HTTPConnection(urlsplit(node.url).netloc, timeout=limit_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), JSON)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def until_answered(self, method, path, body, limit_s, ended, first=None):
        """The first good answer of any node, its node, and how often another one had to be asked."""
        end, retries = time.monotonic() + PATIENCE_S, 0
        node = first or self.random.choice(self.nodes)
        last = None
        while time.monotonic() < end and not (ended.is_set() and retries > 3):
            answer = self.once(node, method, path, body, limit_s)
            if answer is not None and answer[0] < 300:
                return answer[1], node, retries
            last = answer or last
            retries += 1
            node = self.random.choice([other for other in self.nodes if other is not node])
            time.sleep(PAUSE_S)
        return None, last, retries


class Figures:
    """What all clients have seen. A list takes one item at a time, so no lock is needed but for the books."""

    def __init__(self):
        self.acknowledged = set()
        # By catalog: the edition that each generation holds, and the newest generation.
        self.editions, self.newest = {}, {}
        self.visible_s, self.search_s, self.write_s = [], [], []
        self.answered_at = []
        self.searches = self.search_errors = self.search_retries = 0
        self.writes = self.refused_writes = 0
        self.mixed, self.lost = [], []
        self.lock = threading.Lock()

    def note_generation(self, catalog, generation):
        with self.lock:
            self.newest[catalog] = max(generation, self.newest.get(catalog, 0))

    def count_search(self, elapsed_s, retries, is_answered):
        with self.lock:
            self.searches += 1
            self.search_retries += retries
            self.search_errors += not is_answered
            if is_answered:
                self.search_s.append(elapsed_s)
                self.answered_at.append(time.monotonic())


def append_tools(ask, figures, number, ended):
    """Adds one tool after another to a catalog, and looks on another node for what was acknowledged."""
    count = 0
    while not ended.is_set():
        name = f"w{number}_{count}"
        count += 1
        tools = [{"server": "log", "name": name, "description": f"Entry {name}.", "inputSchema": {"type": "object"}}]
        begun = time.monotonic()
        answer, node, retries = ask.until_answered("POST", "/v1/catalogs/log/tools", tools, WRITE_LIMIT_S, ended)
        with figures.lock:
            figures.refused_writes += retries
        if answer is None:
            continue
        acknowledged = time.monotonic()
        figures.write_s.append(acknowledged - begun)
        with figures.lock:
            figures.writes += 1
            figures.acknowledged.add(name)
        generation = answer["generation"]
        figures.note_generation("log", generation)
        look_elsewhere(ask, figures, node, name, generation, acknowledged, ended)
        time.sleep(ask.random.uniform(0, 0.1))


def look_elsewhere(ask, figures, writer, name, generation, acknowledged, ended):
    other = ask.random.choice([node for node in ask.nodes if node is not writer])
    query = {"query": f"log/{name}", "k": 1, "min_generation": generation}
    answer, node, retries = ask.until_answered("POST", "/v1/catalogs/log/search", query, 2 * SEARCH_LIMIT_S, ended, other)
    if answer is None:
        return
    if answer["generation"] < generation or [hit["id"] for hit in answer["hits"]] != [f"log/{name}"]:
        figures.lost.append(f"{name} of generation {generation} is not found on {node.name}: {str(answer)[:300]}")
    if retries == 0:
        figures.visible_s.append(time.monotonic() - acknowledged)


def replace_editions(ask, figures, catalog, ended):
    """Replaces all tools of a catalog with those of the next edition, again and again."""
    edition = 0
    while not ended.is_set():
        edition += 1
        text = f"Part of the edition {edition}."
        tools = [
            {"name": f"part_{number}", "description": text, "inputSchema": {"type": "object"}}
            for number in range(EDITION_TOOLS)
        ]
        path = f"/v1/catalogs/{catalog}/servers/s/tools"
        answer, _, retries = ask.until_answered("PUT", path, tools, WRITE_LIMIT_S, ended)
        with figures.lock:
            figures.refused_writes += retries
            if answer is not None:
                figures.writes += 1
                # A write that was sent twice changes nothing the second time, and has a generation that holds it.
                figures.editions.setdefault(catalog, {})[answer["generation"]] = edition
        if answer is None:
            # Whether it was made is not known: the next one comes after it.
            continue
        figures.note_generation(catalog, answer["generation"])
        time.sleep(ask.random.uniform(0, 0.3))


def search_editions(ask, figures, catalogs, ended):
    """Every answer has all parts of one edition."""
    while not ended.is_set():
        catalog = ask.random.choice(catalogs)
        begun = time.monotonic()
        query = {"query": "part of the edition", "k": ALL_HITS, "mode": "lexical"}
        answer, node, retries = ask.until_answered("POST", f"/v1/catalogs/{catalog}/search", query, SEARCH_LIMIT_S, ended)
        is_answered = answer is not None
        if not is_answered and ended.is_set():
            return
        figures.count_search(time.monotonic() - begun, retries, is_answered)
        if is_answered:
            problem = mix_of(answer, figures.editions.get(catalog, {}))
            if problem:
                figures.mixed.append(f"{catalog} on {node.name}: {problem}")
        time.sleep(ask.random.uniform(0, 0.03))


def mix_of(answer, editions):
    """What is wrong with an answer, if it is not of one edition, and that of its generation."""
    found = {hit["description"].rstrip(".").rsplit(" ", 1)[-1] for hit in answer["hits"]}
    if not found:
        # Before the first edition.
        return None if answer["generation"] < min(editions, default=1) else f"nothing in {answer['generation']}"
    if len(found) > 1 or len(answer["hits"]) != EDITION_TOOLS:
        return f"{len(answer['hits'])} tools of the editions {sorted(found)} in generation {answer['generation']}"
    expected = editions.get(answer["generation"])
    if expected is not None and found != {str(expected)}:
        return f"edition {found} in generation {answer['generation']}, which is edition {expected}"
    return None
