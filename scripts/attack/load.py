"""What is meant to keep the process busy, or to fill its memory: memory, `/livez` and the end of the process meanwhile."""

import json
import socketserver
import threading
import time

from program import JSON, Scratch, Server
from requests_without_rights import send

MOST_MIB = 300
MOST_LIVEZ_S = 2
MOST_END_S = 20
AT_ONCE = 8


def doubling(keyword, levels):
    definitions = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{levels}": {"type": "string"}}}


def heavy_schemas():
    nested = lambda make, levels: make(nested(make, levels - 1)) if levels else {"type": "string"}  # noqa: E731
    of = lambda schema: {"type": "object", "properties": {"x": schema}}  # noqa: E731
    rows = {f"{keyword} that doubles {levels} times": doubling(keyword, levels) for keyword in ("allOf", "anyOf", "oneOf") for levels in (12, 24, 60)}
    for levels in (24, 90):
        rows[f"not, {levels} levels"] = of(nested(lambda inner: {"not": inner}, levels))
        rows[f"if, {levels} levels"] = of(nested(lambda inner: {"if": inner, "then": inner, "else": inner} if levels < 12 else {"if": inner}, levels))
        rows[f"properties, {levels} levels"] = of(nested(lambda inner: {"properties": {"x": inner}, "unevaluatedProperties": False}, levels))
    rows |= {
        "itself": {"type": "object", "properties": {"x": {"$ref": "#"}}}, "a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "a pattern that backtracks": of({"type": "string", "pattern": "^(a+)+$"}), "a large pattern": of({"pattern": "(a{1,500}){1,500}"}), "a pattern of lookarounds": of({"pattern": "(?=(a+)+$)(?!b)"}), "patternProperties": {"type": "object", "patternProperties": {"^(a|a)*$": {}}},
        "contains": of({"type": "array", "contains": {"type": "string"}, "minContains": 1e9}), "uniqueItems": of({"type": "array", "uniqueItems": True}), "a huge exponent": of({"type": "number", "multipleOf": 1e-300}), "1e999": of({"type": "number", "maximum": 1e300}),
        "$dynamicRef": {"$dynamicAnchor": "n", "type": "object", "properties": {"x": {"$dynamicRef": "#n"}}}, "many types": of({"anyOf": [{"const": number} for number in range(5_000)]}), "many names": {"type": "object", "properties": {f"p{number}": {} for number in range(20_000)}, "required": [f"p{number}" for number in range(20_000)]},
        "dependentSchemas": {"type": "object", "dependentSchemas": {f"p{number}": {"$ref": "#"} for number in range(200)}}, "prefixItems": of({"prefixItems": [{"type": "string"}] * 5_000}), "propertyNames": {"propertyNames": {"pattern": "^(x+x+)+y$"}},
    }
    return rows


ARGUMENTS = [{"x": "a" * 5_000 + "!"}, {"x": [list(range(50))] * 50}, {"x": 1e300}, {"x": {"x": {"x": {}}}}, {"a" * 5_000: 1}]


class Watch:
    """Asks `/livez` again and again, and looks at the memory."""

    def __init__(self, server):
        self.server, self.slowest, self.most, self.ended = server, 0.0, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.is_set():
            begin = time.monotonic()
            status, _ = send(self.server.url, "GET", "/livez")
            if status == 200:
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.most = max(self.most, self.server.resident_mib())
            time.sleep(0.05)

    def finish(self, report, what, bounds_memory=True):
        self.ended.set()
        self.thread.join()
        begin = time.monotonic()
        self.server.stop()
        end = time.monotonic() - begin
        report.note(f"{what}: most {self.most:.0f} MiB, slowest /livez {self.slowest * 1000:.0f} ms, SIGTERM {end:.1f} s")
        if bounds_memory:
            report.attempt(f"{what}: memory", self.most < MOST_MIB, f"{self.most:.0f} MiB")
        report.attempt(f"{what}: /livez", self.slowest < MOST_LIVEZ_S, f"{self.slowest:.1f} s")
        report.attempt(f"{what}: SIGTERM", end < MOST_END_S, f"{end:.1f} s")


def schemas(report, is_short):
    """Schemas that grow, stored and checked while others ask for the server's health."""
    with Scratch() as data:
        server = Server(data, "--allow", "*").wait_until_ready()
        watch = Watch(server)
        for number, (name, schema) in enumerate(heavy_schemas().items()):
            begin = time.monotonic()
            tool = [{"name": f"t{number}", "description": name, "inputSchema": schema}]
            status, answer = send(server.url, "POST", "/v1/catalogs/default/tools?server=s", tool)
            report.attempt(f"store: {name}", 0 < status < 500 and time.monotonic() - begin < 10, (status, answer[:80]))
            for arguments in ARGUMENTS[: 2 if is_short else None]:
                begin = time.monotonic()
                body = {"tool": f"s/t{number}", "arguments": arguments, "dry_run": True}
                status, answer = send(server.url, "POST", "/v1/catalogs/default/calls", body)
                taken = time.monotonic() - begin
                report.attempt(f"check: {name}, {str(arguments)[:20]}", 0 < status < 500 and taken < 10, (status, f"{taken:.1f} s", answer[:80]))
        # The end comes while the heaviest are being checked.
        heavy = [threading.Thread(target=send, args=(server.url, "POST", "/v1/catalogs/default/calls", {"tool": f"s/t{number}", "arguments": {"x": "a"}, "dry_run": True})) for number in range(20)]
        for thread in heavy:
            thread.start()
        watch.finish(report, "schemas")
        for thread in heavy:
            thread.join()


CHUNK = "x" * 60_000
# It is looked for in every answer.
KEY = "sk-load-6b5c4f0c2b9d8e7a"
# An event that is just short enough.
LARGE = "x" * 15_000_000
EVENTS = {
    "/v1/chat/completions": lambda text: "data: " + json.dumps({"id": "a", "choices": [{"index": 0, "delta": {"content": text}}]}) + "\n\n",
    "/v1/messages": lambda text: "event: content_block_delta\ndata: " + json.dumps({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}) + "\n\n",
    "/v1/responses": lambda text: "data: " + json.dumps({"type": "response.output_text.delta", "delta": text}) + "\n\n",
}


class Endless(socketserver.StreamRequestHandler):
    """A provider that answers without end: events, large events, one line, or JSON."""

    kind = "events"
    seconds = 20

    def handle(self):
        line = self.rfile.readline().decode()
        length = 0
        while (header := self.rfile.readline().strip()) != b"":
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        self.rfile.read(length)
        path = line.split(" ")[1] if " " in line else ""
        event = next((make for known, make in EVENTS.items() if path.endswith(known.removeprefix("/v1"))), None)
        is_json = self.kind == "JSON"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {'application/json' if is_json else 'text/event-stream'}\r\nConnection: close\r\n\r\n"
        if self.kind in ("events", "large events"):
            piece = later = event(LARGE if self.kind == "large events" else CHUNK).encode() if event else b""
        else:
            piece = {"one line": "data: ", "JSON": '{"a":"'}[self.kind].encode()
            later = CHUNK.encode()
        end = time.monotonic() + self.seconds
        try:
            self.wfile.write(head.encode() + piece)
            while time.monotonic() < end:
                self.wfile.write(later)
        except OSError:
            pass


def endless(report, is_short):
    """Answers of a provider without end, eight at once, in every API and form."""
    class Server_(socketserver.ThreadingTCPServer):
        daemon_threads = allow_reuse_address = True

    provider = Server_(("127.0.0.1", 0), Endless)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{provider.server_address[1]}"
    tools = [{"name": f"t{number}", "description": "Does it.", "parameters": {"type": "object"}} for number in range(60)]
    Endless.seconds = 4 if is_short else 20
    for kind in ("events", "large events") if is_short else ("events", "large events", "one line", "JSON"):
        Endless.kind = kind
        with Scratch() as data:
            server = Server(data, "--llm", f"{address}/v1", "--llm-key", KEY, "--llm-messages", address, "--model", "m", "--defer-above", "10").wait_until_ready()
            report.note(f"at the start: {server.resident_mib():.0f} MiB")
            watch = Watch(server)
            asking = []
            for number in range(AT_ONCE):
                path = list(EVENTS)[number % 3]
                body = request_of(path, tools, is_stream=kind != "JSON" and number % 2 == 0)
                asking.append(threading.Thread(target=drain, args=(server.url, path, body)))
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            # A debug build takes up to 343 MiB for large events, so the short form only notes that.
            watch.finish(report, f"{kind} without end", bounds_memory=not (is_short and kind == "large events"))
    provider.shutdown()


def request_of(path, tools, is_stream):
    functions = [{"type": "function", "function": tool} for tool in tools]
    return {
        "/v1/chat/completions": {"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": "hi"}], "tools": functions},
        "/v1/messages": {"model": "m", "stream": is_stream, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "tools": [{"name": tool["name"], "description": "x", "input_schema": tool["parameters"]} for tool in tools]},
        "/v1/responses": {"model": "m", "stream": is_stream, "input": "hi", "tools": [{"type": "function", **tool} for tool in tools]},
    }[path]


def drain(url, path, body):
    """Reads an answer to its end and forgets it."""
    import http.client
    from urllib.parse import urlsplit

    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=40)
    try:
        connection.request("POST", path, json.dumps(body), JSON)
        answer = connection.getresponse()
        while answer.read(1 << 16):
            pass
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
