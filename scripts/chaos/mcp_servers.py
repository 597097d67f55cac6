"""MCP servers that are slow or lie, beside a good one, whose tools stay found and called."""

import json
import sys
import time
from pathlib import Path

from program import Client, Scratch, Server

LIES = ["silent", "garbage", "endless_pages", "huge", "wrong_ids", "exits", "flood", "bad_tools", "slow", "noisy"]
# A server that keeps its promises is connected to and called within this, whatever the others do.
PATIENCE_S = 45
MOST_RESIDENT_MIB = 600
PROTOCOL = "2025-06-18"


class McpServers:
    name = "MCP servers"

    def __init__(self, random, report):
        self.random, self.report = random, report
        self.scratch = Scratch()
        self.folder = self.scratch.__enter__()
        self.number = 0

    def close(self):
        self.scratch.__exit__()

    def round(self):
        self.number += 1
        lies = self.random.sample(LIES, 4)
        script = str(Path(__file__).with_name("lying_server.py"))
        servers = {lie: {"command": sys.executable, "args": [script, lie]} for lie in ["good", *lies]}
        config = self.folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        data = self.folder / f"data{self.number}"
        server = Server(data, "--mcp", str(config)).wait_until_ready()
        client = Client(server.url)
        if not self.is_found(client):
            self.report.loss(f"beside {lies} the good server's tool is not found")
        answer = call(client)
        if "sunny" not in str(answer):
            self.report.loss(f"beside {lies} the good server's tool answers {str(answer)[:300]}")
        if server.resident_mib() > MOST_RESIDENT_MIB:
            self.report.loss(f"beside {lies} the server takes {server.resident_mib():.0f} MiB")
        client.close()
        server.stop()
        self.report.end_of(server)

    def is_found(self, client):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            _, answer = client.request("POST", "/v1/search", {"query": "good/tell_weather", "k": 1})
            if answer.get("hits") and answer["hits"][0]["id"] == "good/tell_weather":
                return True
            time.sleep(0.05)
        return False


def call(client):
    """Calls the good tool through the gateway, in a session as older clients open it."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "chaos", "version": "1"}}
    client.request("POST", "/mcp", rpc(1, "initialize", hello), headers)
    session = client.last_headers.get("mcp-session-id")
    if session is None:
        return "no session"
    headers |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": PROTOCOL}
    client.request("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    arguments = {"name": "good/tell_weather", "arguments": {"city": "Oslo"}}
    return client.request("POST", "/mcp", rpc(2, "tools/call", {"name": "call_tool", "arguments": arguments}), headers)


def rpc(number, method, parameters):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
