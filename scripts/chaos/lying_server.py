"""An MCP server on standard input and output that does what its argument says: `good`, or a way to be bad."""

import json
import os
import sys
import threading
import time

LIE = sys.argv[1]
WEATHER = {
    "name": "tell_weather",
    "description": "Tells the weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, result):
    number = request["id"] + 1000 if LIE == "wrong_ids" else request["id"]
    send({"jsonrpc": "2.0", "id": number, "result": result})


def initialize(request):
    version = request["params"]["protocolVersion"]
    capabilities = {"tools": {"listChanged": True}}
    answer(
        request,
        {"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": LIE, "version": "1"}},
    )


def list_tools(request):
    match LIE:
        case "endless_pages":
            answer(request, {"tools": [WEATHER], "nextCursor": str(time.monotonic_ns())})
        case "huge":
            answer(request, {"tools": [WEATHER | {"description": "x" * (64 << 20)}]})
        case "bad_tools":
            names = ["", "a b", "x" * 5000, "\u202egnp", "tell_weather", "tell_weather", None, 7]
            answer(request, {"tools": [WEATHER | {"name": name} for name in names] + [0, [], {"name": "bare"}]})
        case "exits":
            os._exit(3)
        case "slow":
            time.sleep(20)
            answer(request, {"tools": [WEATHER]})
        case _:
            answer(request, {"tools": [WEATHER]})


def flood():
    while True:
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def main():
    if LIE == "silent":
        sys.stdin.read()
        return
    if LIE == "garbage":
        for line in sys.stdin:
            sys.stdout.write("\x00\xff{[[" * 1000 + "\n" + line)
            sys.stdout.flush()
        return
    if LIE == "noisy":
        threading.Thread(target=make_noise, daemon=True).start()
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                initialize(request)
            case "notifications/initialized" if LIE == "flood":
                threading.Thread(target=flood, daemon=True).start()
            case "tools/list":
                list_tools(request)
            case "tools/call":
                answer(request, {"content": [{"type": "text", "text": "sunny"}]})
            case "ping":
                answer(request, {})


def make_noise():
    while True:
        sys.stderr.write("noise " * 1000)


main()
