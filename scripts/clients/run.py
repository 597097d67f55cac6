"""Puts clients that others wrote, unmodified, before the drop-in endpoint: with 250 tools of an MCP server (or as
functions of an SDK) and a provider that is played. Prints a table, and fails where a client saw a call that it does not
know, did not call the tools of the office, or had to search for its own.

usage: run.py --program PATH --folder FOLDER [--only PART] [--keep]
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from clients import CLIENTS, HERE
from model import ARCHIVE, CANCEL, OWN, SEARCHES, own_tool, plain
from provider import Provider

CLIENT_S = 120
READY_TRIES = 100
INSTALL_S = 600
WANTED = [ARCHIVE, CANCEL, ARCHIVE]


def installed(client, folder):
    """The folder of a client's packages; installs them once."""
    name = "-".join(client.packages[:1]).replace("/", "_").replace("[", "_").replace("]", "")
    place = folder / name
    if (place / "installed").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    if client.registry == "npm":
        (place / "package.json").write_text('{"private": true, "type": "module"}')
        commands = [["npm", "install", "--loglevel", "error", "--no-audit", "--no-fund", *client.packages]]
    else:
        commands = [
            [sys.executable, "-m", "venv", "venv"],
            ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", *client.packages],
        ]
    for command in commands:
        done = subprocess.run(command, cwd=place, timeout=INSTALL_S, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line.removeprefix("npm error ").strip() for line in done.stderr.splitlines()]
            said = [line for line in lines if "rror: " in line or "No matching" in line or "notarget" in line]
            raise Skipped(f"it does not install here: {(said or lines or ['no reason given'])[-1][:150]}")
    (place / "installed").touch()
    return place


class Skipped(Exception):
    """Why a client was not tried."""


class Endpoint:
    """The program before the provider, with a log."""

    def __init__(self, program, provider, data):
        self.log = data / "log"
        with self.log.open("w") as log:
            command = [
                program,
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--embedder",
                "none",
                "--data",
                str(data / "data"),
                "--log-format",
                "json",
                "--llm",
                provider.url,
            ]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        self.url = line.strip().removeprefix("listening on ")
        self.wait_until_ready()

    def wait_until_ready(self):
        # Whatever proxy the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(READY_TRIES):
            try:
                return opener.open(f"{self.url}/readyz", timeout=5).close()
            except urllib.error.URLError:
                time.sleep(0.2)
        raise RuntimeError(f"the program at {self.url} is not ready; its log is {self.log}")

    def lines(self):
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                entry = json.loads(line)
                yield {**entry, **entry.get("fields", {})}

    def end(self):
        self.process.terminate()
        self.process.wait()


def run_client(client, place, home, endpoint, calls):
    commands, further = client.command(endpoint.url, home, calls)
    commands = commands if isinstance(commands[0], list) else [commands]
    # Its own settings and no others; nothing but loopback.
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
    environment |= {
        "HOME": str(home),
        "NO_PROXY": "127.0.0.1",
        "CI": "1",
        "DO_NOT_TRACK": "1",
        "NO_COLOR": "1",
        "OFFICE_CALLS": str(calls),
    }
    environment |= client.environment | further
    work = home / "work"
    work.mkdir(exist_ok=True)
    output = ""
    for command in commands:
        if command[0] == "node":
            shutil.copy(HERE / "sdks" / command[1], place)
            command = ["node", str(place / command[1]), *command[2:]]
        else:
            command = [str(place / command[0]), *command[1:]]
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output += process.communicate(timeout=CLIENT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output += process.communicate()[0] + "\n(ended after its time)"
    return output


def figures(client, provider, endpoint, calls, output):
    """What is in the table, and what is wrong."""
    lines = list(endpoint.lines())
    rounds = [line for line in lines if line.get("message") == "model request" and line.get("tools_offered", 0) > 0]
    unmatched = sorted(
        {f"{line['method']} {line.get('path', '')}" for line in lines if line.get("route") == "unmatched"}
    )
    made = calls.read_text().split("\n")[:-1] if calls.exists() else []
    shown = [len(request["tools"]) for request in provider.requests if request["tools"]]
    sent = [request["bytes"] for request in provider.requests if request["tools"]]
    with_tools = [request for request in provider.requests if request["tools"]]
    first = [{"name": name} for name in with_tools[0]["tools"]] if with_tools else []
    ran = [request["call"] for request in provider.requests if request["call"] and plain(request["call"]) in OWN]
    searches = sum(request["call"] in SEARCHES for request in provider.requests)
    reasons = sorted({line["not_deferred"] for line in rounds if line.get("not_deferred")})
    steps_aside = "client_searches" in reasons
    leaked = 0 if steps_aside else sum(name in output for name in SEARCHES)
    unknown = leaked + sum(call.startswith("unknown") for call in made)
    row = {
        "client": client.title,
        "offered": max((line["tools_offered"] for line in rounds), default=0),
        "shown": f"{min(shown, default=0)}–{max(shown, default=0)}",
        "bytes": max(sent, default=0),
        "searches": searches,
        "own": "called" if ran else ("none" if not client.has_own_tools else "no"),
        "office": ", ".join(made) or "none",
        "unknown": unknown,
        "routes": ", ".join(unmatched) or "none",
        "aside": ", ".join(reasons),
    }
    problems = []
    if made != WANTED:
        problems.append(f"the office was called for {made}")
    if client.has_own_tools and not steps_aside and not (ran and own_tool(first)):
        problems.append(f"no tool of its own ran; it showed {[tool['name'] for tool in first]}")
    if unknown:
        problems.append(f"{unknown} unknown calls came to it")
    return row, problems


def tried(client, arguments):
    if client.skipped:
        raise Skipped(client.skipped)
    place = installed(client, arguments.folder)
    data = Path(tempfile.mkdtemp(prefix="clients-"))
    home, calls = data / "home", data / "calls"
    home.mkdir()
    provider = Provider()
    endpoint = Endpoint(arguments.program, provider, data)
    try:
        output = run_client(client, place, home, endpoint, calls)
        time.sleep(0.5)
        row, problems = figures(client, provider, endpoint, calls, output)
    finally:
        endpoint.end()
        provider.end()
    if problems or arguments.keep:
        (data / "output").write_text(output)
        (data / "requests.json").write_text(json.dumps(provider.requests, indent=1))
        print(f"  {client.title}: kept in {data}", file=sys.stderr)
    else:
        shutil.rmtree(data, ignore_errors=True)
    return row, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    print(
        "| client | tools offered | tools shown | longest request | searches | own tools | calls of the office | unknown calls | routes that are not there | not deferred |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    failed = False
    for client in CLIENTS:
        if arguments.only.lower() not in client.name.lower():
            continue
        try:
            row, problems = tried(client, arguments)
        except Skipped as skipped:
            print(f"| {client.title} | skipped: {skipped} | | | | | | | | |", flush=True)
            continue
        print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)
        for problem in problems:
            failed = True
            print(f"  {client.title}: {problem}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
