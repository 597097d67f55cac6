"""An MCP server over stdio with 250 tools, each of which says that it was called. OFFICE_CALLS names a file to which
it adds the name of each called tool."""

import json
import os
import sys

sys.dont_write_bytecode = True

from tools import tools  # noqa: E402

TOOLS = tools()
NAMES = {tool["name"] for tool in TOOLS}


def result_of(method, params):
    if method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "office", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return called(params["name"])
    if method in ("resources/list", "prompts/list", "resources/templates/list"):
        return {{"resources/list": "resources", "prompts/list": "prompts"}.get(method, "resourceTemplates"): []}
    return {} if method == "ping" else None


def called(name):
    known = name in NAMES
    with open(os.environ["OFFICE_CALLS"], "a", encoding="utf-8") as calls:
        calls.write(f"{name if known else f'unknown {name}'}\n")
    text = f"the office has done {name}" if known else f"there is no tool {name}"
    return {"content": [{"type": "text", "text": text}], "isError": not known}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    result = result_of(message["method"], message.get("params") or {})
    if result is None:
        answer["error"] = {"code": -32601, "message": f"no method {message['method']}"}
    else:
        answer["result"] = result
    print(json.dumps(answer), flush=True)
