"""Compares the requests of our calls with those that clients of others make of the same calls, field by field.

usage: python3 scripts/requests DOCUMENTS [--verbose]

DOCUMENTS is a folder with stripe.json, openai.json, slack.json and github.json; one that is missing is left out. Needs
the packages of scripts/requests/requirements.txt. The program is target/debug/toolscout, or what TOOLSCOUT names. Both
sides call a server on loopback that records what arrives. Ends with 1 if a request differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

from cases import DOCUMENTS, TOKEN
from echo import Echo

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("TOOLSCOUT", ROOT / "target/debug/toolscout")).absolute()
FIELDS = ("method", "path", "query", "headers", "type", "body")
# Slack's documents have the token as an argument beside the header in which its client sends it.
TOKEN_ARGUMENT = "token"


class Program:
    """The program, with the documents in its catalog and every service at the recording server."""

    def __init__(self, folder, documents, echo):
        self.folder = Path(folder)
        for server, document, *_ in DOCUMENTS:
            if (documents / document).exists():
                self.run("add", documents / document, "--server", server, "--no-embed", "--skip-invalid")
        self.write("script.jsonl", json.dumps({"reply": {"text": "done"}}))
        profile = self.write("profile.toml", profile_of(echo))
        command = [*self.command(), "serve", "--listen", "127.0.0.1:0", "--llm", f"script:{self.folder}/script.jsonl",
                   "--profile", profile]
        words = {f"ECHO_TOKEN_{word.upper()}": f"{word} {TOKEN}" for _, _, _, word, *_ in DOCUMENTS}
        environment = {**os.environ, **words}
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=environment)
        self.address = self.listening()
        while self.ask("GET", "/tools?limit=1")[0] == 503:
            time.sleep(0.1)

    def command(self):
        return [BINARY, "--data", self.folder / "data", "--embedder", "none"]

    def run(self, *arguments):
        subprocess.run([*self.command(), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def listening(self):
        """The address, from what the program says once it listens."""
        for line in self.process.stdout:
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        sys.exit("the program did not start")

    def ask(self, method, path, body=None):
        """Status and body of an answer of the catalog."""
        headers = {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        url = f"{self.address}/v1/catalogs/default{path}"
        request = urllib.request.Request(url, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def call(self, tool, arguments):
        """Calls a tool, and says why it was not called."""
        status, definition = self.ask("GET", f"/tools/{tool}")
        if status != 200:
            return definition
        known = find(definition, "inputSchema")["properties"]
        inside = {name: value for name, value in arguments.items() if name not in known}
        if inside and "body" in known:
            # The fields of a body that is not one plain object stand in an argument of their own.
            arguments = {name: value for name, value in arguments.items() if name in known}
            arguments["body"] = inside
        status, answer = self.ask("POST", "/calls", {"tool": tool, "arguments": arguments})
        if status != 200:
            return answer
        result = answer.get("result") or {}
        return "" if result.get("status") == "ok" else f"{answer['outcome']}: {result.get('content')}"

    def close(self):
        self.process.terminate()
        self.process.wait()


def profile_of(echo):
    """Everything is allowed, codes stay as they are written, and every service is at the recording server."""
    lines = ['[gate.normalize]', 'upper_case = []', '[gate.defaults]', 'state_changing = "allow"', 'destructive = "allow"', '[gate.limits]', 'calls = 1000',
             'state_changing = 1000', 'destructive = 1000']
    for server, _, path, word, *_ in DOCUMENTS:
        lines += ['[[operations]]', f'server = "{server}"', f'base_url = "{echo.address}{path}"',
                  f'auth = {{ header = {{ name = "Authorization", env = "ECHO_TOKEN_{word.upper()}" }} }}']
    return "\n".join(lines)


def without_token(request):
    """A request without the token that stands among the arguments."""
    def kept(pairs):
        return [pair for pair in pairs if pair[0] != TOKEN_ARGUMENT]

    body = request["body"]
    if isinstance(body, list) and all(isinstance(pair, tuple) for pair in body):
        body = kept(body)
    return {**request, "query": kept(request["query"]), "body": body}


def find(value, name):
    """The field of this name, wherever it is."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        return next((found for inner in value.values() if (found := find(inner, name)) is not None), None)
    return None


def compare(ours, theirs):
    """The fields in which two requests differ."""
    return [field for field in FIELDS if ours[field] != theirs[field]]


def play(program, echo, server, make_client, case):
    """The fields that differ, and what each side sent."""
    name, arguments, by_client, *reply = case
    echo.reply = reply[0] if reply else {"id": "x", "object": "x", "name": "repo", "url": "/x", "ok": True}
    echo.taken()
    problem = ""
    try:
        by_client(make_client(echo.address), dict(arguments))
    except Exception as error:  # pylint: disable=broad-except
        # The reply is not the service's; what was asked for counts.
        problem = repr(error)
    theirs = echo.taken()
    if not theirs:
        return ["the client made no request"], problem, None
    given = {**arguments, TOKEN_ARGUMENT: TOKEN} if server == "slack" else arguments
    problem = program.call(f"{server}/{name}", given)
    ours = echo.taken()
    if not ours:
        return ["not called"], problem, theirs[-1]
    ours, theirs = without_token(ours[-1]), without_token(theirs[-1])
    return compare(ours, theirs), ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--verbose", action="store_true", help="show both requests where they differ")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    echo, equal, played = Echo(), 0, 0
    with tempfile.TemporaryDirectory(prefix="toolscout-requests-") as folder:
        program = Program(folder, options.documents, echo)
        try:
            for server, document, _, _, make_client, cases in DOCUMENTS:
                if not (options.documents / document).exists():
                    print(f"{document} is not in {options.documents}, so {server} is left out")
                    continue
                of_server = 0
                for case in cases:
                    differs, ours, theirs = play(program, echo, server, make_client, case)
                    played, of_server = played + 1, of_server + (not differs)
                    print(f"{server:7} {case[0]:40} {'equal' if not differs else 'differs: ' + ', '.join(differs)}")
                    if differs and options.verbose:
                        print(f"    ours   {ours}\n    theirs {theirs}")
                equal += of_server
                print(f"{server:7} {of_server} of {len(cases)} requests are equal\n")
        finally:
            program.close()
            echo.close()
    print(f"{equal} of {played} requests are equal")
    sys.exit(0 if equal == played else 1)


if __name__ == "__main__":
    main()
