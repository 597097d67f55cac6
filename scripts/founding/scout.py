"""The program on stage: its commands and its server, each with a data directory and tools of its own."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import program
import tools
from program import JSON, PATIENCE_S, ROOT, Client

HERE = Path(__file__).resolve().parent
# Of the words and the tables, which need no time to embed a tool.
EMBEDDER = "table"


def binary():
    return Path(os.environ.get("TOOLSCOUT", ROOT / "target/debug/toolscout")).absolute()


class Stage:
    """What one example needs: a folder, models, tools that can be called, and the program."""

    def __init__(self, provider):
        self.provider = provider
        self.folder = Path(tempfile.mkdtemp(prefix="toolscout-founding-"))
        self.servers = []

    def __enter__(self):
        config = {"command": sys.executable, "args": ["-B", str(HERE / "tool_server.py"), str(self.folder / "calls")]}
        self.write("servers.json", json.dumps({"mcpServers": {"demo": config}}))
        self.write("tools.json", json.dumps(tools.ALL))
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def model(self, *replies):
        return self.provider.model(*replies)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def called(self, name=None):
        """The calls that reached the tools: name and arguments. With a name, the arguments of its calls."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        all_calls = [json.loads(line) for line in lines]
        return all_calls if name is None else [arguments for called, arguments in all_calls if called == name]

    def with_tools(self):
        """The flag that brings the tools of `tools.py`."""
        return ["--mcp", str(self.folder / "servers.json")]

    def run(self, *arguments, data="data", embedder=EMBEDDER, environment=None):
        """Runs a command to its end."""
        command = [binary(), "--data", str(self.folder / data), "--embedder", embedder, *map(str, arguments)]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=self.folder,
            env=self.environment(environment),
            check=False,
        )

    def ask(self, model, question, *flags, **options):
        """Asks the agent at the terminal, and gives its events."""
        ended = self.run("agent", "--llm", model.url, "--model", "scripted", "--json", *flags, question, **options)
        try:
            events = [json.loads(line) for line in ended.stdout.splitlines()]
        except ValueError:
            events = []
        if not events:
            raise RuntimeError(f"no events: {ended.stdout[-300:]} {ended.stderr[-300:]}")
        return events

    def serve(self, model, *flags, environment=None):
        """Starts a server with an agent."""
        command = [binary(), "--data", str(self.folder / "data"), "--embedder", EMBEDDER, "serve"]
        command += ["--listen", "127.0.0.1:0", "--log", "warn", "--llm", model.url, "--model", "scripted", *flags]
        server = Server(list(map(str, command)), self.folder, self.environment(environment))
        self.servers.append(server)
        server.wait_until_ready()
        server.wait_for_tools()
        return server

    def environment(self, further):
        """The environment, without what would change what the program does."""
        kept = {name: value for name, value in os.environ.items() if not is_setting(name)}
        return kept | {"NO_PROXY": "127.0.0.1", "XDG_CONFIG_HOME": str(self.folder)} | (further or {})


def is_setting(name):
    return name.startswith("TOOLSCOUT") or name in ("TAVILY_API_KEY", "SEARXNG_URL")


class Server(program.Server):
    """`toolscout serve` with an agent."""

    # pylint: disable=super-init-not-called
    def __init__(self, command, folder, environment):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, cwd=folder, env=environment
        )
        program.Server.running.add(self.process)
        self.url = None

    def kill(self):
        super().kill()
        self.log.close()

    def wait_for_tools(self):
        """Waits until the tools of the MCP server are in the catalog."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            _, found = self.request("POST", "/v1/search", {"query": "get_weather", "k": 1})
            if found.get("hits"):
                return
            time.sleep(0.02)
        raise program.Hang(f"the tools were not there after {PATIENCE_S} s: {self.said()}")

    def request(self, method, path, body=None):
        """The status and the decoded body of an answer."""
        client = Client(self.url)
        try:
            return client.request(method, path, body)
        finally:
            client.close()

    def chat(self, query, **fields):
        """Asks the agent, and gives the stream of its events."""
        return Events(self.url, "POST", "/v1/agent/chat", {"query": query, **fields})

    def compatible_chat(self, query):
        """Asks by the route for browsers."""
        _, given = self.request("POST", "/v1/agent/token")
        return Events(self.url, "GET", f"/agent/chat/stream?query={quote(query)}&token={quote(given['token'])}")


class Events:
    """The server-sent events of an answer, read as they come."""

    def __init__(self, url, method, path, body=None):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
        self.connection.request(method, path, body and json.dumps(body).encode(), JSON)
        self.response = self.connection.getresponse()
        if self.response.status != 200:
            raise RuntimeError(f"{method} {path}: {self.response.status} {self.response.read()[:300]}")
        self.conversation = self.response.headers.get("x-conversation-id")
        self.seen = []

    def __iter__(self):
        for line in self.response:
            if line.startswith(b"data: "):
                self.seen.append(json.loads(line.removeprefix(b"data: ")))
                yield self.seen[-1]
        self.connection.close()

    def until(self, kind):
        """Reads up to the first event of a kind, and gives it; None if the stream ends first."""
        return next((event for event in self if event["type"] == kind), None)

    def rest(self):
        """All events, read to the end."""
        for _ in self:
            pass
        return self.seen


def side_by_side(*functions):
    """Runs functions at the same time, and gives what they return."""
    returned = [None] * len(functions)

    def run(place, function):
        returned[place] = function()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return returned


def of_kind(events, kind):
    return [event for event in events if event["type"] == kind]


def answer_of(events):
    return "".join(event["content"] for event in of_kind(events, "text"))


def injected(events):
    """The ids of the tools that a run injected."""
    return [tool for event in of_kind(events, "tools_injected") for tool in event["tools"]]
