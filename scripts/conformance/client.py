"""The client that the conformance tool runs in its client scenarios: toolscout, with a small client before it.

usage: client.py URL, with what the tool sets in the environment

Logs in by `toolscout mcp login`, with the scope that the message of a refused call names, and calls the tools of the server at
the URL through `toolscout mcp`.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TOOLSCOUT", str(ROOT / "target/debug/toolscout"))
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
STATELESS = "2026-07-28"
NAME = "tested"
# The scenario whose server gets back the schema of its tool, as clients see it.
ECHOES = "json-schema-2020-12-preservation"
ECHOED = "json_schema_2020_12_tool"
# The scenario whose server can list its tools and not call them.
LISTS_ONLY = "json-schema-ref-no-deref"
# What tools want that need arguments.
GIVEN = {"add_numbers": {"a": 2, "b": 3}, "valid_tool": {"region": "us-west1"}}
# A client logs in again after a step-up, but not for ever.
MAX_LOGINS = 3
# Nothing here leaves this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Gateway:
    """A session of `toolscout mcp`."""

    def __init__(self, common, servers):
        command = [*common, "mcp", "--mcp", str(servers), "--allow", "*", "--pin", f"{NAME}/{ECHOED}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = 0
        info = {"name": "conformance", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": info}
        self.request("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method, params):
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": filled(message["params"])})
            elif message.get("id") == self.last and "method" not in message:
                return message
        raise SystemExit("the gateway has ended")

    def call(self, name, arguments):
        """The text of a result, and whether it is one of a failure."""
        answer = self.request("tools/call", {"name": name, "arguments": arguments})
        result = answer.get("result") or {"content": [{"text": answer["error"]["message"]}], "isError": True}
        return "\n".join(block.get("text", "") for block in result["content"]), result.get("isError", False)

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def filled(question):
    """The answer of a person who takes the defaults of a form."""
    fields = question["requestedSchema"].get("properties", {})
    return {"action": "accept", "content": {name: field["default"] for name, field in fields.items() if "default" in field}}


def log_in(common, servers, scope):
    """Logs in, and opens the page as a browser does."""
    words = ["--scope", scope] if scope else []
    command = [*common, "mcp", "login", NAME, "--mcp", str(servers), "--no-browser", "--timeout", "20", *words]
    login = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in login.stderr:
        print(line, end="", file=sys.stderr)
        if line.startswith("http"):
            try:
                OPENER.open(line.strip(), timeout=20).close()
            except urllib.error.HTTPError as error:
                print(f"the page answers {error.code}", file=sys.stderr)
    return login.wait() == 0


def use(gateway):
    """Calls the tools of the server; what a failed call says."""
    listed, failed = gateway.call("list_tools", {"server": NAME})
    if failed:
        # The servers of some scenarios have no tools.
        return None if "no server is called" in listed else listed
    if SCENARIO == LISTS_ONLY:
        return None
    names = [line.split("(")[0].split(" ")[0] for line in json.loads(listed)["tools"]]
    problem = None
    wanted = [(call["name"], call.get("arguments", {})) for call in CONTEXT.get("toolCalls", [])]
    for name, arguments in wanted or [(name, GIVEN.get(name, {})) for name in names]:
        if SCENARIO == ECHOES:
            shown = gateway.request("tools/list", {})["result"]["tools"]
            schema = next(tool["inputSchema"] for tool in shown if tool["name"] == f"{NAME}__{ECHOED}")
            name, arguments = "json_schema_echo", {"schema": schema}
        said, failed = gateway.call("call_tool", {"name": f"{NAME}/{name}", "arguments": arguments})
        print(f"{name}: {said}", file=sys.stderr)
        problem = said if failed else problem
    return problem


def main(url):
    entry = {"type": "http", "url": url}
    if VERSION == STATELESS:
        entry["protocol"] = STATELESS
    oauth = {"private_hosts": ["localhost", "127.0.0.1"]}
    oauth |= {key: CONTEXT[key] for key in ("client_id", "client_secret") if key in CONTEXT}
    if SCENARIO.startswith("auth/"):
        entry["oauth"] = oauth
    with tempfile.TemporaryDirectory() as folder:
        servers = Path(folder) / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {NAME: entry}}))
        common = [PROGRAM, "--data", str(Path(folder) / "data")]
        for _ in range(MAX_LOGINS):
            gateway = Gateway(common, servers)
            problem = use(gateway)
            gateway.close()
            wanted = re.search(r"`toolscout mcp login (.*?)`", problem or "")
            if not wanted:
                break
            words = shlex.split(wanted.group(1))
            scope = words[words.index("--scope") + 1] if "--scope" in words else None
            if not log_in(common, servers, scope):
                return 1
    print(problem, file=sys.stderr)
    return 1 if problem else 0


sys.exit(main(sys.argv[-1]))
