"""The other side of the program's sockets: a model's provider whose models reply by a script, and a web search."""

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PATIENCE_S = 30
# What the program's request for recommended questions says, which no other does.
WANTS_QUESTIONS = "Suggest three short questions"
RECOMMENDED = ["明天会怎么样？", "为什么？", "还有别的吗？"]


def says(text):
    """A reply: the model's answer."""
    return {"text": text}


def calls(*named):
    """A reply that calls tools, each given as name and arguments."""
    return {"calls": named}


class Model:
    """A model with a script: replies, or functions of a request that give one. Keeps what it is asked."""

    def __init__(self, url, replies):
        self.url = url
        self.replies = iter(replies)
        self.requests = []
        self.questions = []
        self.lock = threading.Lock()

    def reply(self, body):
        # A request for recommended questions may come beside others, and is not part of the script.
        if WANTS_QUESTIONS in str(body["messages"][0]):
            self.questions.append(body)
            return says(json.dumps(RECOMMENDED, ensure_ascii=False))
        with self.lock:
            self.requests.append(body)
            reply = next(self.replies, says("The script has no reply left."))
        return reply(body) if callable(reply) else reply


class Provider:
    """Serves all models, each below a path of its own, and the web search."""

    def __enter__(self):
        self.models = {}
        self.searches = []
        self.results = {}
        self.numbers = itertools.count(1)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.provider = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def model(self, *replies):
        number = str(next(self.numbers))
        self.models[number] = Model(f"{self.url}/{number}/v1", replies)
        return self.models[number]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model = self.server.provider.models[self.path.split("/")[1]]
        reply = model.reply(body)
        try:
            self.send_reply(reply)
        except (BrokenPipeError, ConnectionResetError):
            # The run was stopped.
            pass

    def do_GET(self):
        """A SearXNG server: `/search?q=…&format=json`."""
        query = parse_qs(urlsplit(self.path).query).get("q", [""])[0]
        self.server.provider.searches.append(query)
        body = json.dumps({"query": query, "results": self.server.provider.results.get(query, [])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_reply(self, reply):
        if "status" in reply:
            self.send_error(reply["status"])
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for delta in deltas(reply):
            self.send_chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if "until" in reply:
            reply["until"].wait(PATIENCE_S)
        reason = "tool_calls" if "calls" in reply else "stop"
        self.send_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        self.send_chunk({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def send_chunk(self, chunk):
        chunk |= {"id": "c", "object": "chat.completion.chunk", "model": "scripted"}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_):
        pass


def deltas(reply):
    text = reply.get("text", "")
    # In two parts, as a stream has them.
    for part in filter(None, [text[: len(text) // 2], text[len(text) // 2 :]]):
        yield {"content": part}
    for index, (name, arguments) in enumerate(reply.get("calls", ())):
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        yield {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}


def tools_of(request):
    """The names of the tools that a request shows to the model."""
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def text_of(request):
    """All that a request says to the model, without its tools."""
    return json.dumps(request["messages"], ensure_ascii=False)
