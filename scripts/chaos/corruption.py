"""Damage to any file of a catalog: the answers stay as they were, or there is an error that says what is wrong."""

import json
import shutil

from program import ROOT, Client, Refused, Scratch, Server, run

QUERIES = [
    "will it rain tomorrow",
    "send an email to Ada",
    "create_issue",
    "open a ticket about a bug",
    "convert dollars to euros",
    "delete old files and list what is left",
    "book a table for two",
    "weather/getForecast",
]
# Files that hold nothing.
EMPTY = (".lock", "-shm")


class Corruption:
    name = "corruption"

    def __init__(self, random, report):
        self.random, self.report = random, report
        self.scratch = Scratch()
        self.folder = self.scratch.__enter__()
        self.sound = [self.make_closed(), self.make_killed()]
        self.answers = {data: self.ask_sound(data) for data in self.sound}

    def close(self):
        self.scratch.__exit__()

    def make_closed(self):
        data = self.folder / "closed"
        code, _, said = run(data, "add", str(ROOT / "fixtures/tools"))
        assert code == 0, said
        return data

    def make_killed(self):
        """With a write-ahead log that was not taken into the database."""
        data = self.folder / "killed"
        server = Server(data).wait_until_ready()
        client = Client(server.url)
        for file in sorted((ROOT / "fixtures/tools").glob("*.json"))[:6]:
            client.request("POST", f"/v1/catalogs/default/tools?default_server={file.stem}", json.loads(file.read_text()))
        server.kill()
        return data

    def ask_sound(self, data):
        copy = self.folder / "copy"
        shutil.copytree(data, copy)
        server = Server(copy).wait_until_ready()
        answers = ask(server)
        server.kill()
        shutil.rmtree(copy)
        return answers

    def round(self):
        sound = self.random.choice(self.sound)
        data = self.folder / "damaged"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(sound, data)
        files = [path for path in sorted(data.rglob("*")) if path.is_file() and not path.name.endswith(EMPTY)]
        path = self.random.choice(files)
        damage = self.random.choice([truncate, zero, scatter, swap, delete])
        done = damage(path, files, self.random)
        what = f"{done} {path.relative_to(data)} ({sound.name})"
        server = Server(data)
        try:
            server.wait_until_ready()
        except Refused as error:
            if "rror" not in str(error) or not str(error).strip():
                self.report.loss(f"{what}: it ends without an error: {str(error)[-300:]!r}")
            self.report.end_of(server)
            return
        self.compare(ask(server), self.answers[sound], what)
        server.kill()
        self.report.end_of(server)

    def compare(self, found, expected, what):
        for query, (status, ids, degraded) in found.items():
            # An error and a leg that could not take part are visible to whoever asks; another answer is not.
            if status == 200 and ids != expected[query][1] and not degraded:
                self.report.loss(f"{what}: {query!r} gives {ids}, it was {expected[query][1]}")
                return


def ask(server):
    """For each query the status, the ids, and whether the answer says that it is less than it should be."""
    client, answers = Client(server.url), {}
    for query in QUERIES:
        status, answer = client.request("POST", "/v1/catalogs/default/search", {"query": query, "k": 5})
        ids = [hit["id"] for hit in answer["hits"]] if status == 200 else None
        answers[query] = (status, ids, status == 200 and bool(answer.get("degraded")))
    status, page = client.request("GET", "/v1/catalogs/default/tools?limit=1000")
    tools = json.dumps(page["tools"], sort_keys=True) if status == 200 else None
    answers["(all tools)"] = (status, tools and [tools], False)
    client.close()
    return answers


def truncate(path, _, random):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(random.randrange(size) if size else 0)
    return "truncated"


def zero(path, _, random):
    size = path.stat().st_size
    begin = random.randrange(size) if size else 0
    length = min(4096, size - begin)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(length))
    return f"zeroed {begin}..{begin + length} of"


def scatter(path, _, random):
    content = bytearray(path.read_bytes())
    for _ in range(64 if content else 0):
        content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content)
    return "64 random bytes in"


def swap(path, files, random):
    siblings = [file for file in files if file.parent == path.parent and file.suffix == path.suffix and file != path]
    other = random.choice(siblings or files)
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)
    return f"swapped {other.name} and"


def delete(path, *_):
    path.unlink()
    return "deleted"
