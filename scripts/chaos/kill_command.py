"""SIGKILL to commands that change a catalog, catalogs that are just being made among them."""

import json
import time

from expected import Expected, random_change, tool
from program import Scratch, run

SERVERS = ["a", "b"]

class KillCommand:
    name = "kill of a command"

    def __init__(self, random, report):
        self.random, self.report = random, report
        self.scratch = Scratch()
        self.data = self.scratch.__enter__() / "data"
        self.catalogs = {}
        self.made = 0
        self.longest_life = 1.5 * self.time_of_a_command()

    def close(self):
        self.scratch.__exit__()

    def time_of_a_command(self):
        """So that kills fall into all of a command, and some commands live."""
        begin = time.monotonic()
        code, _, said = run(self.data, "--catalog", "first", "add", "-", stdin=json.dumps(tool("t", "Does it.")).encode())
        assert code == 0, said
        return time.monotonic() - begin

    def round(self):
        catalog, servers = self.choose_catalog()
        server = self.random.choice(SERVERS)
        expected = servers[server]
        kind, texts, change = random_change(self.random, lambda n: f"tool_{n}", most=120)
        expected.begin(change)
        lines = "".join(json.dumps(tool(name, text)) + "\n" for name, text in texts.items()).encode()
        match kind:
            case "delete":
                arguments, stdin = ["remove", f"{server}/{next(iter(texts))}"], b""
            case "sync":
                arguments, stdin = ["sync", "-", "--server", server], lines
            case _:
                arguments, stdin = ["add", "-", "--server", server], lines
        life = self.random.uniform(0.001, self.longest_life)
        code, _, said = run(self.data, "--catalog", catalog, *arguments, stdin=stdin, kill_after=life)
        self.report.said(said)
        if code == 0:
            expected.acknowledge()
            self.report.writes += 1
        elif code is not None:
            # A tool that is not there cannot be removed; the command says so and changes nothing.
            expected.refuse()
            if kind != "delete":
                self.report.loss(f"{' '.join(arguments)} failed after a kill: {said.strip()[-300:]}")
        self.look(catalog, servers)

    def choose_catalog(self):
        if not self.catalogs or self.random.random() < 0.3:
            self.made += 1
            self.catalogs[f"c{self.made}"] = {server: Expected() for server in SERVERS}
        if len(self.catalogs) > 8:
            self.delete_one()
        return self.random.choice(sorted(self.catalogs.items()))

    def delete_one(self):
        name = self.random.choice(sorted(self.catalogs))
        del self.catalogs[name]
        life = self.random.uniform(0.001, self.longest_life)
        code, _, said = run(self.data, "catalogs", "delete", name, "--yes", kill_after=life)
        self.report.said(said)
        if code is None:
            # It may be there whole, or gone.
            run(self.data, "catalogs", "delete", name, "--yes")

    def look(self, catalog, servers):
        code, out, said = run(self.data, "catalogs", "list", "--json")
        self.report.said(said)
        if code != 0:
            self.report.loss(f"the list of catalogs fails: {said.strip()[-300:]}")
            return
        found = {server: {} for server in SERVERS}
        if catalog in out.decode():
            code, out, said = run(self.data, "--catalog", catalog, "list", "--json")
            self.report.said(said)
            if code != 0:
                self.report.loss(f"the list of the tools of {catalog} fails: {said.strip()[-300:]}")
                return
            for entry in json.loads(out):
                found[entry["server"]][entry["name"]] = entry["description"]
        for server, expected in servers.items():
            problem = expected.compare(found[server])
            if problem:
                self.report.loss(f"{catalog}/{server}, {problem}")
