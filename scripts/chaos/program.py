"""The program under test: its server and its commands, watched for panics and for time."""

import atexit
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
# Nothing takes this long, on a busy machine either.
PATIENCE_S = 60
JSON = {"Content-Type": "application/json"}
# What a process writes when it panics, and what the allocator and the system write when they end it.
PANICS = ("panicked at", "memory allocation of", "stack overflow", "fatal runtime error")


class Hang(Exception):
    """Something took longer than PATIENCE_S."""


class Unreachable(Exception):
    """The server is gone, or has cut the connection."""


class Refused(Exception):
    """The server ended before it was ready; the message is what it said."""


def binary():
    return Path(os.environ.get("TOOLSCOUT", ROOT / "target/release/toolscout")).absolute()


def flags(data):
    return ["--data", str(data), "--embedder", "table"]


class Connection(http.client.HTTPConnection):
    """Sends a request in one piece: a server may answer, and close, before it has read a body that comes later."""

    def _send_output(self, message_body=None, encode_chunked=False):
        self._buffer.extend((b"", b""))
        message = b"\r\n".join(self._buffer) + (message_body or b"")
        del self._buffer[:]
        self.send(message)


class Client:
    """One connection, opened again after a failure."""

    def __init__(self, url):
        self.address = urlsplit(url).netloc
        self.connection = None
        self.last_headers = {}

    def request(self, method, path, body=None, headers=JSON):
        """The status and the decoded body. Raises Unreachable or Hang."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            if self.connection is None:
                self.connection = Connection(self.address, timeout=PATIENCE_S)
            self.connection.request(method, path, data, headers)
            response = self.connection.getresponse()
            text = response.read()
        except TimeoutError as error:
            self.close()
            raise Hang(f"{method} {path} was not answered") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(str(error)) from error
        self.last_headers = response.headers
        is_json = "json" in response.headers.get("content-type", "")
        answer = json.loads(text) if is_json and text else text.decode(errors="replace")
        if response.status == 503 and is_json and answer["error"]["code"] == "timeout":
            # The server goes on with a change that it has accepted, so this is no refusal of it.
            raise Hang(f"{method} {path} took the server longer than it lets a request take")
        return response.status, answer

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Server:
    """`toolscout serve` on a free port. Those that still run when the script ends are killed."""

    running = set()

    def __init__(self, data, *arguments):
        self.log = tempfile.TemporaryFile()
        # The log is for finding panics, so it is short.
        command = [binary(), *flags(data), "serve", "--listen", "127.0.0.1:0", "--log", "warn", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        Server.running.add(self.process)
        self.url = None

    def wait_until_ready(self):
        """Raises Refused with what it said when it ends instead."""
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on "):
            self.process.wait(PATIENCE_S)
            raise Refused(self.said())
        self.url = line.removeprefix("listening on ").strip()
        client, end = Client(self.url), time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                if client.request("GET", "/readyz")[0] == 200:
                    client.close()
                    return self
            except Unreachable:
                pass
            if self.process.poll() is not None:
                raise Refused(self.said())
            time.sleep(0.005)
        raise Hang(f"the server was not ready after {PATIENCE_S} s")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Hang("the server did not end after SIGTERM") from error
        self.close()

    def close(self):
        Server.running.discard(self.process)
        self.process.stdout.close()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def resident_mib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the process has no memory")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def kill_what_runs():
    for process in list(Server.running):
        process.kill()
        process.wait()


atexit.register(kill_what_runs)


def run(data, *arguments, stdin=b"", kill_after=None):
    """Runs a command to its end, or kills it. Gives its exit code (None when killed), output and messages."""
    process = subprocess.Popen(
        [binary(), *flags(data), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = process.communicate(stdin, timeout=PATIENCE_S if kill_after is None else kill_after)
        return process.returncode, out, err.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        process.kill()
        out, err = process.communicate()
        if kill_after is None:
            raise Hang(f"{' '.join(arguments)} did not end") from error
        return None, out, err.decode(errors="replace")


def panics(text):
    """The lines that tell of a panic."""
    return [line for line in text.splitlines() if any(mark in line for mark in PANICS)]


class Scratch:
    """A folder for one kind of round."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="toolscout-chaos-"))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
