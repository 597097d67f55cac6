"""A server on loopback that records what is asked of it, and answers what the next client needs to be content."""

import json
import threading
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

# Headers that carry what a call says. The others name the client, its versions and its connection.
COMPARED_HEADERS = ("authorization",)


class Echo:
    """The server, its address, and the requests since they were last taken."""

    def __init__(self):
        self.requests = []
        self.reply = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """Answers every method with the reply that is set."""

            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                self.answer()

            def answer(self):
                """Records the request, and replies."""
                owner.requests.append(read(self))
                body = json.dumps(owner.reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def taken(self):
        """The requests so far, which are forgotten."""
        taken, self.requests = self.requests, []
        return taken

    def close(self):
        """Stops listening."""
        self.server.shutdown()


def read(handler):
    """A request as comparable fields."""
    length = int(handler.headers.get("Content-Length") or 0)
    content = handler.rfile.read(length) if length else chunks(handler)
    target = urlsplit(handler.path)
    kind = handler.headers.get("Content-Type", "")
    return {
        "method": handler.command,
        "path": plain_path(target.path),
        "query": sorted(parse_qsl(target.query, keep_blank_values=True)),
        "headers": {name: handler.headers[name] for name in COMPARED_HEADERS if name in handler.headers},
        "type": kind.split(";")[0].strip().lower() if content else "",
        "body": parsed(kind, content),
    }


def plain_path(path):
    """A path in one spelling: clients escape different characters, but a slash within a segment is always escaped."""
    return "/".join(quote(unquote(segment), safe="") for segment in path.split("/"))


def chunks(handler):
    """The body of a request without a length."""
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return b""
    content = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        content += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return content


def parsed(kind, content):
    """A body as fields that can be compared: JSON, or sorted pairs of names and values."""
    if not content:
        return None
    if "json" in kind:
        return json.loads(content)
    if "urlencoded" in kind:
        return sorted(parse_qsl(content.decode(), keep_blank_values=True))
    if "multipart" in kind:
        message = BytesParser(_class=Message).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + content)
        return sorted(part_of(part) for part in message.get_payload())
    return content.decode(errors="replace")


def part_of(part):
    """Name, file name and content of a part."""
    disposition = "Content-Disposition"
    name, filename = part.get_param("name", header=disposition), part.get_param("filename", header=disposition)
    return name, filename or "", part.get_payload(decode=True).decode(errors="replace")
