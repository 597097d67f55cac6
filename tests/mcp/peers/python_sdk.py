"""Speaks to toolscout with the Python SDK and prints what it saw as one line of JSON.

    python_sdk.py MODE stdio COMMAND [ARGUMENT ...]
    python_sdk.py MODE http URL [KEY]

MODE is `legacy` for the handshake, `auto` for the newest protocol both sides speak.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


def transport(kind, target, *rest):
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=target, args=list(rest), env=passed_on()))
    headers = {"Authorization": f"Bearer {rest[0]}"} if rest else {}
    client = httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False)
    return streamable_http_client(target, http_client=client)


def passed_on():
    import os

    return {name: value for name, value in os.environ.items() if name.startswith("TOOLSCOUT_") or name == "PATH"}


async def main(mode, kind, *target):
    changes = []

    async def heard(message):
        if "ToolListChanged" in type(message).__name__ or "tools/list_changed" in str(message):
            changes.append("tools/list_changed")

    progress = []

    async def progressed(done, total, message):
        progress.append([done, total])

    async with Client(transport(kind, *target), mode=mode, message_handler=heard) as client:
        before = [tool.name for tool in (await client.list_tools()).tools]
        answer = await client.call_tool("tool_search", {"query": "current time in a timezone", "limit": 2})
        found = json.loads(answer.content[0].text)
        after = [tool.name for tool in (await client.list_tools()).tools]
        arguments = {"name": "time/get_current_time", "arguments": {"timezone": "Europe/Berlin"}}
        called = await client.call_tool("call_tool", arguments)
        bad = await client.call_tool("call_tool", {"name": "time/get_current_tim", "arguments": {}})
        slow = {"name": "everything/trigger-long-running-operation", "arguments": {"duration": 0.2, "steps": 4}}
        await client.call_tool("call_tool", slow, progress_callback=progressed)
        report = {
            "protocol": str(client.session.protocol_version),
            "before": before,
            "after": after,
            "found": [line.split("(")[0] for line in found["tools"]],
            "called": called.content[0].text,
            "called_meta": called.meta,
            "bad": [bad.is_error, bad.content[0].text],
            "changes": changes,
            "progress": progress,
        }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
