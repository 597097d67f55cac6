"""Speaks to a profile of toolscout with the Python SDK, whose person says yes, and prints what it saw as a line of JSON.

    python_profile.py MODE URL KEY OWN OTHER

MODE is `legacy` for the handshake, `auto` for the newest protocol both sides speak. OWN is a server of the profile, OTHER
one outside of it.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


async def main(mode, url, key, own, other):
    asked = []

    async def says_yes(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False)
    transport = streamable_http_client(url, http_client=http)
    async with Client(transport, mode=mode, elicitation_callback=says_yes) as client:

        async def text(name, arguments):
            return (await client.call_tool(name, arguments)).content[0].text

        echo = {"text": f"hello {own}"}
        report = {
            "listed": [[tool.name, tool.description] for tool in (await client.list_tools()).tools],
            "servers": await text("list_tools", {}),
            "found": await text("tool_search", {"query": "says it again", "limit": 20}),
            "called": await text("call_tool", {"name": f"{own}/echo", "arguments": echo}),
            "other": await text("call_tool", {"name": f"{other}/echo", "arguments": echo}),
            "missing": await text("call_tool", {"name": "none/echo", "arguments": echo}),
            "asked": len(asked),
        }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
