"""A disk that fills up under a server: what is acknowledged stays, searches go on, and space given back is used."""

import os
import subprocess

from expected import Expected, tool
from kill_server import tools_of
from program import Client, Refused, Scratch, Server

SIZE = "12m"
BATCH = 50
# So that a few thousand tools fill the disk.
DESCRIPTION = "And more of it, with words of its own. " * 100
# Enough to fill the disk several times over.
MOST_BATCHES = 400


class FullDisk:
    name = "full disk"

    def __init__(self, random, report):
        self.random, self.report = random, report
        self.scratch = Scratch()
        self.folder = self.scratch.__enter__()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", self.folder], capture_output=True, check=False
        )
        if mounted.returncode != 0:
            report.skip("it takes the right to mount a file system")
        self.mounted = mounted.returncode == 0
        self.number = 0

    def close(self):
        if self.mounted:
            subprocess.run(["umount", self.folder], check=True)
        self.scratch.__exit__()

    def round(self):
        if not self.mounted:
            return
        self.number += 1
        data = self.folder / f"data{self.number}"
        ballast = self.folder / "ballast"
        ballast.write_bytes(os.urandom(self.random.randint(1, 5) << 20))
        expected = Expected()
        server = Server(data).wait_until_ready()
        client = Client(server.url)
        refused = self.fill(client, expected)
        if not refused:
            self.report.loss("the disk never became full")
        status, _ = client.request("POST", "/v1/catalogs/default/search", {"query": "tool 7"})
        if status != 200:
            self.report.loss(f"on a full disk a search answers {status}")
        self.compare(client, expected, "on the full disk")
        if self.random.random() < 0.5:
            server.kill()
            self.report.end_of(server)
            server = self.started_again(data, ballast)
            client = Client(server.url)
            self.compare(client, expected, "after a kill on the full disk")
        ballast.unlink(missing_ok=True)
        self.write_again(client, expected)
        server.stop()
        self.report.end_of(server)
        server = Server(data).wait_until_ready()
        self.compare(Client(server.url), expected, "after a restart")
        server.kill()
        self.report.end_of(server)
        subprocess.run(["rm", "-rf", data], check=True)

    def started_again(self, data, ballast):
        """On a full disk it may refuse to start, but not with space."""
        try:
            return Server(data).wait_until_ready()
        except Refused:
            ballast.unlink(missing_ok=True)
            return Server(data).wait_until_ready()

    def fill(self, client, expected):
        for batch in range(MOST_BATCHES):
            texts = {f"tool_{batch}_{n}": f"Does {batch} {n}. {DESCRIPTION}" for n in range(BATCH)}
            expected.begin(lambda tools, texts=texts: tools | texts)
            tools = [tool(name, text) for name, text in texts.items()]
            status, answer = client.request("POST", "/v1/catalogs/default/tools?server=s", tools)
            if status == 200:
                expected.acknowledge()
                self.report.writes += 1
                continue
            expected.refuse()
            if status < 500 or "error" not in answer:
                self.report.loss(f"on a full disk a write answers {status}: {str(answer)[:200]}")
            return True
        return False

    def write_again(self, client, expected):
        expected.begin(lambda tools: tools | {"last": "The last one."})
        status, answer = client.request("POST", "/v1/catalogs/default/tools?server=s", [tool("last", "The last one.")])
        if status == 200:
            expected.acknowledge()
            self.report.writes += 1
        else:
            expected.refuse()
            self.report.loss(f"with space again a write answers {status}: {str(answer)[:200]}")

    def compare(self, client, expected, when):
        problem = expected.compare(tools_of(client, "default", "s"))
        if problem:
            self.report.loss(f"{when}, {problem}")
