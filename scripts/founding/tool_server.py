"""An MCP server on standard input and output with the tools of `tools.py`. Writes each call into a file.

usage: tool_server.py CALLS
"""

import json
import sys
from pathlib import Path

import tools


def main():
    record = Path(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request, record)
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def answer(request, record):
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "demo", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": tools.ALL}
        case "tools/call":
            call = request["params"]
            with record.open("a") as calls:
                calls.write(json.dumps([call["name"], call.get("arguments", {})]) + "\n")
            return {"content": [{"type": "text", "text": tools.call(call["name"], call.get("arguments", {}))}]}
        case _:
            return {}


main()
