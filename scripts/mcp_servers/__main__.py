"""Connects toolscout to MCP servers of others, and prints a table: what each lists, what toolscout takes of it, and how a call
through `toolscout mcp` ends.

usage: python3 scripts/mcp_servers [NAME ...]     NAME: servers of servers.toml; all are tried by default

The servers are installed at pinned versions into target/mcp-servers. Needs Node 20 and Python 3.11. Ends with 1 if a server
cannot be connected, a tool of it is not taken, or a call ends otherwise than expected. The program is
target/debug/toolscout, or what TOOLSCOUT names.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

sys.dont_write_bytecode = True

from direct import Client

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TOOLSCOUT", str(ROOT / "target/debug/toolscout"))
INSTALLED = ROOT / "target/mcp-servers"
# Some servers load models or databases before they answer.
START_LIMIT_S = 60
CALL_LIMIT_S = 120
INHERITED = ["PATH", "HOME", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"]


def install(server):
    """Installs a server where it is not yet, and returns the folder of its commands."""
    if "npm" in server:
        package, _, version = server["npm"].rpartition("@")
        folder = INSTALLED / "npm"
        described = folder / "node_modules" / package / "package.json"
        if not described.exists() or json.loads(described.read_text())["version"] != version:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "package.json").exists():
                (folder / "package.json").write_text('{"private": true}\n')
            # Without the packages' own scripts, which may download browsers.
            command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", server["npm"]]
            subprocess.run(command, cwd=folder, check=True)
        return folder / "node_modules/.bin", version
    package, _, version = server["pypi"].partition("==")
    folder = INSTALLED / "pypi" / package
    if not (folder / f"{version}.installed").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", server["pypi"], *server.get("with", [])]
        subprocess.run(pip, check=True)
        (folder / f"{version}.installed").touch()
    return folder / "bin", version


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, process, log):
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"it ended: {Path(log).read_text(errors='replace')[-300:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"it does not listen within {START_LIMIT_S} s")


class Server:
    """One server of servers.toml, in a folder of its own."""

    def __init__(self, definition, folder):
        self.definition, self.folder = definition, folder
        self.commands, self.version = install(definition)
        self.port = free_port()
        fill = lambda text: text.replace("{port}", str(self.port)).replace("{folder}", str(folder))
        command = [fill(part) for part in definition["command"]]
        self.command = [str(self.commands / command[0]), *command[1:]]
        self.call = json.loads(fill(json.dumps(definition["call"])))
        self.env = {name: fill(value) for name, value in definition.get("env", {}).items()}
        self.url = fill(definition["url"]) if "url" in definition else None
        self.process = None

    def entry(self):
        """As an `mcpServers` file has it."""
        if self.url:
            return {"url": self.url}
        return {"command": self.command[0], "args": self.command[1:], "env": self.env, "cwd": str(self.folder)}

    def environment(self):
        return {**{name: os.environ[name] for name in INHERITED if name in os.environ}, **self.env}

    def __enter__(self):
        if self.url:
            log = self.folder / "server.log"
            with open(log, "wb") as out:
                self.process = subprocess.Popen(
                    self.command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            wait_for(self.port, self.process, log)
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def listed(self):
        """How many tools it lists, asked without toolscout."""
        if self.url and self.url.endswith("/sse"):
            return None
        with Client.of(self) as client:
            return len(client.tools())


def synced(file, folder):
    """How many tools toolscout takes of the server, and what it says of the others."""
    command = [PROGRAM, "--data", str(folder / "data"), "--catalog", "tried", "--json", "sync", "--no-embed", "--mcp", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=CALL_LIMIT_S)
    if ran.returncode != 0:
        raise RuntimeError((ran.stderr or ran.stdout).strip()[-300:])
    report = json.loads(ran.stdout)
    [server] = report["servers"]
    return len(server["added"]), server.get("skipped", [])


def called(file, folder, name, call):
    """The result of a call through `toolscout mcp`."""
    command = [PROGRAM, "--data", str(folder / "data"), "--catalog", "tried", "mcp", "--mcp", str(file), "--allow", "*"]
    with Client.of_command(command, dict(os.environ), folder) as client:
        arguments = {"name": f"{name}/{call['tool']}", "arguments": call["arguments"]}
        return client.call("call_tool", arguments, CALL_LIMIT_S)


def outcome_of(result, expected):
    """What a call ended with in few words, and whether that is as expected."""
    texts = [block.get("text", "") for block in result.get("content", [])]
    text = " ".join(" ".join(texts).split())
    failed = result.get("isError") is True
    shown = ("failure: " if failed else "") + text[:160].replace("|", "/")
    readable = text and not text.startswith("{'") and "Some(" not in text
    holds = readable if expected == "failure" else not failed and expected in text
    return shown, bool(holds)


def tried(definition):
    """The row of a server, and what does not hold."""
    problems = []
    with tempfile.TemporaryDirectory() as folder, Server(definition, Path(folder)) as server:
        folder = Path(folder)
        file = folder / "servers.json"
        file.write_text(json.dumps({"mcpServers": {definition["name"]: server.entry()}}))
        listed = server.listed()
        begun = time.monotonic()
        taken, skipped = synced(file, folder)
        problems += [f"skipped: {reason}" for reason in skipped]
        if listed is not None and listed != taken:
            problems.append(f"it lists {listed} tools, and {taken} were taken")
        result = called(file, folder, definition["name"], server.call)
        shown, holds = outcome_of(result, definition["expected"])
        if not holds:
            problems.append(f"the call ended with {shown!r}")
        seconds = time.monotonic() - begun
    transport = "stdio" if not server.url else "SSE" if server.url.endswith("/sse") else "HTTP"
    package = definition.get("npm") or definition["pypi"]
    row = [package, transport, "" if listed is None else listed, taken, f"`{definition['call']['tool']}`: {shown}", f"{seconds:.1f}"]
    return row, problems


def main():
    if not shutil.which(PROGRAM):
        sys.exit(f"there is no {PROGRAM}; build it, or name the program with TOOLSCOUT")
    definitions = tomllib.loads(Path(__file__).with_name("servers.toml").read_text())["servers"]
    wanted = sys.argv[1:]
    unknown = set(wanted) - {definition["name"] for definition in definitions}
    if unknown:
        sys.exit(f"servers.toml has no {', '.join(sorted(unknown))}")
    print("| package | transport | listed | taken | a call | s |\n|---|---|---:|---:|---|---:|", flush=True)
    failed = False
    for definition in definitions:
        if wanted and definition["name"] not in wanted:
            continue
        try:
            row, problems = tried(definition)
            print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)
        except (OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        for problem in problems:
            print(f"{definition['name']}: {problem}", file=sys.stderr, flush=True)
        failed = failed or bool(problems)
    sys.exit(1 if failed else 0)


main()
