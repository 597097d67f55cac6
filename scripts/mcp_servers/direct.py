"""A small MCP client of its own, to know what a server says without toolscout between."""

import json
import queue
import subprocess
import threading
import urllib.request

LIMIT_S = 60
VERSION = "2025-06-18"


class Client:
    """A session with a server. Raises RuntimeError where it does not answer or answers with an error."""

    def __init__(self):
        self.id = 0

    @staticmethod
    def of(server):
        if server.url:
            return OverHttp(server.url)
        return Client.of_command(server.command, server.environment(), server.folder)

    @staticmethod
    def of_command(command, env, folder):
        return OverStdio(command, env, folder)

    def __enter__(self):
        info = {"name": "direct", "version": "1"}
        self.ask("initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info})
        self.notify("notifications/initialized")
        return self

    def ask(self, method, params, limit=LIMIT_S):
        self.id += 1
        answer = self.exchange({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}, limit)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def tools(self):
        tools, params = [], {}
        while True:
            page = self.ask("tools/list", params)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    def call(self, name, arguments, limit):
        return self.ask("tools/call", {"name": name, "arguments": arguments}, limit)


class OverStdio(Client):
    def __init__(self, command, env, folder):
        super().__init__()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=env, cwd=folder, text=True, **pipes)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def notify(self, method):
        self.write({"jsonrpc": "2.0", "method": method})

    def write(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def exchange(self, message, limit):
        self.write(message)
        while True:
            try:
                line = self.lines.get(timeout=limit)
            except queue.Empty:
                raise RuntimeError(f"{message['method']}: no answer within {limit} s") from None
            if line is None:
                raise RuntimeError(f"{message['method']}: it ended")
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class OverHttp(Client):
    def __init__(self, url):
        super().__init__()
        self.url, self.session = url, None

    def post(self, message, limit=LIMIT_S):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "Mcp-Protocol-Version": VERSION}
        request = urllib.request.Request(self.url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=limit) as response:
            self.session = response.headers.get("Mcp-Session-Id") or self.session
            is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
            if not is_stream:
                return [json.loads(body) for body in [response.read()] if body.strip()]
            messages = []
            for line in response:
                if line.startswith(b"data:") and line[5:].strip():
                    messages.append(json.loads(line[5:]))
                    if messages[-1].get("id") == message.get("id"):
                        break
            return messages

    def notify(self, method):
        self.post({"jsonrpc": "2.0", "method": method})

    def exchange(self, message, limit):
        for answer in self.post(message, limit):
            if answer.get("id") == message["id"]:
                return answer
        raise RuntimeError(f"{message['method']}: no answer")

    def __exit__(self, *_):
        pass
