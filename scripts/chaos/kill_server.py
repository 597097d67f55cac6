"""SIGKILL to `toolscout serve` while several clients write and search, then a look at what is there."""

import threading
import time

from expected import Expected, random_change, tool
from program import Client, Hang, Refused, Scratch, Server, Unreachable

WRITERS = 3
READERS = 2
# One round in so many kills the server before it is ready.
EARLY_KILLS = 8
SHORTEST_WORK_S = 0.4


class Writer:
    """Changes the tools of one server, and now and then makes and deletes a catalog of its own."""

    def __init__(self, number, random):
        self.server, self.catalog, self.own = f"w{number}", f"c{number % 2}", f"own{number}"
        self.random = random
        self.expected = Expected()
        self.own_exists = {False}

    def work(self, url, ended):
        client = Client(url)
        while not ended.is_set():
            try:
                if self.random.random() < 0.1:
                    self.make_or_delete_catalog(client)
                else:
                    self.change_tools(client)
            except Unreachable:
                return

    def change_tools(self, client):
        kind, texts, change = random_change(self.random, lambda n: f"tool_{n}")
        self.expected.begin(change)
        base = f"/v1/catalogs/{self.catalog}"
        tools = [tool(name, text) for name, text in texts.items()]
        match kind:
            case "put":
                name = tools[0]["name"]
                status, _ = client.request("PUT", f"{base}/tools/{self.server}/{name}", tools[0])
            case "delete":
                name = tools[0]["name"]
                status, _ = client.request("DELETE", f"{base}/tools/{self.server}/{name}")
            case "sync":
                status, _ = client.request("PUT", f"{base}/servers/{self.server}/tools", tools)
            case _:
                status, _ = client.request("POST", f"{base}/tools?server={self.server}", tools)
        # 404: there was no such tool to delete, which is what the change says too.
        if status in (200, 201, 204, 404):
            self.expected.acknowledge()
        else:
            self.expected.refuse()

    def make_or_delete_catalog(self, client):
        made = self.random.random() < 0.5
        self.own_exists |= {made}
        path = f"/v1/catalogs/{self.own}"
        status, _ = client.request("PUT" if made else "DELETE", path)
        if status in (200, 201, 204, 404):
            self.own_exists = {made}
            self.expected.acknowledged += 1


class KillServer:
    name = "kill of the server"

    def __init__(self, random, report):
        self.random, self.report = random, report
        self.scratch = Scratch()
        self.data = self.scratch.__enter__() / "data"
        self.writers = [Writer(number, random) for number in range(WRITERS)]
        self.longest_life = SHORTEST_WORK_S + self.time_to_start()

    def close(self):
        self.scratch.__exit__()

    def time_to_start(self):
        begin = time.monotonic()
        self.started().stop()
        return time.monotonic() - begin

    def round(self):
        acknowledged = self.acknowledged()
        if self.random.randrange(EARLY_KILLS) == 0:
            self.kill_early()
        else:
            self.kill_at_work()
        self.look()
        self.report.writes += self.acknowledged() - acknowledged

    def acknowledged(self):
        return sum(writer.expected.acknowledged for writer in self.writers)

    def kill_early(self):
        server = Server(self.data)
        time.sleep(self.random.uniform(0, self.longest_life / 2))
        server.kill()
        self.report.end_of(server)

    def kill_at_work(self):
        server = self.started()
        self.make_catalogs(server)
        ended = threading.Event()
        threads = [threading.Thread(target=self.guarded, args=(writer.work, server.url, ended)) for writer in self.writers]
        threads += [threading.Thread(target=self.guarded, args=(search, server.url, ended)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(0, self.longest_life))
        server.kill()
        ended.set()
        for thread in threads:
            thread.join()
        self.report.end_of(server)

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Hang as error:
            self.report.hang(str(error))

    def started(self):
        try:
            return Server(self.data).wait_until_ready()
        except Refused as error:
            self.report.loss(f"the server does not start again: {error}")
            raise

    def make_catalogs(self, server):
        client = Client(server.url)
        for catalog in {writer.catalog for writer in self.writers}:
            client.request("PUT", f"/v1/catalogs/{catalog}")
        client.close()

    def look(self):
        server = self.started()
        client = Client(server.url)
        self.make_catalogs(server)
        status, answer = client.request("GET", "/v1/catalogs")
        if status != 200:
            self.report.loss(f"the list of catalogs answers {status}: {answer}")
            answer = {"catalogs": []}
        names = {catalog["name"] for catalog in answer["catalogs"]}
        for writer in self.writers:
            found = tools_of(client, writer.catalog, writer.server)
            problem = writer.expected.compare(found)
            if problem:
                self.report.loss(f"{writer.catalog}/{writer.server}, {problem}")
            if (writer.own in names) not in writer.own_exists:
                self.report.loss(f"the catalog {writer.own} is {'there' if writer.own in names else 'not there'}")
            writer.own_exists = {writer.own in names}
            self.find_one(client, writer)
        client.close()
        # Ending it by SIGTERM now and then leaves other files than a kill does.
        if self.random.random() < 0.1:
            server.stop()
        else:
            server.kill()
        self.report.end_of(server)

    def find_one(self, client, writer):
        if not writer.expected.tools:
            return
        name = self.random.choice(sorted(writer.expected.tools))
        query = {"query": f"{writer.server}/{name}", "k": 1}
        status, answer = client.request("POST", f"/v1/catalogs/{writer.catalog}/search", query)
        if status != 200 or not answer["hits"] or answer["hits"][0]["id"] != f"{writer.server}/{name}":
            self.report.loss(f"a search for {writer.server}/{name} answers {status}: {str(answer)[:200]}")


def search(url, ended):
    client = Client(url)
    number = 0
    while not ended.is_set():
        number += 1
        try:
            client.request("POST", f"/v1/catalogs/c{number % 2}/search", {"query": f"do the tool {number} in a way"})
        except Unreachable:
            return


def tools_of(client, catalog, server):
    """The tools of a server by name with their descriptions, over all pages."""
    found, cursor = {}, ""
    while True:
        status, page = client.request("GET", f"/v1/catalogs/{catalog}/tools?server={server}&limit=50{cursor}")
        if status != 200:
            return {"status": str(status), "answer": str(page)[:300]}
        found |= {tool["name"]: tool["description"] for tool in page["tools"]}
        if not page.get("next_cursor"):
            return found
        cursor = f"&cursor={page['next_cursor']}"
