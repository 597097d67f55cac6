"""Speaks to toolscout with FastMCP's client and prints what it saw as one line of JSON.

    fastmcp_client.py stdio COMMAND [ARGUMENT ...]
    fastmcp_client.py http URL [KEY]
"""

import asyncio
import json
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


def transport(kind, target, *rest):
    if kind == "stdio":
        env = {name: value for name, value in os.environ.items() if name.startswith("TOOLSCOUT_") or name == "PATH"}
        return StdioTransport(command=target, args=list(rest), env=env, keep_alive=False)
    headers = {"Authorization": f"Bearer {rest[0]}"} if rest else {}
    return StreamableHttpTransport(url=target, headers=headers)


async def main(*target):
    async with Client(transport(*target)) as client:
        tools = [tool.name for tool in await client.list_tools()]
        answer = await client.call_tool("tool_search", {"query": "current time in a timezone", "limit": 2})
        found = [line.split("(")[0] for line in json.loads(answer.content[0].text)["tools"]]
        arguments = {"name": "time__get_current_time", "arguments": {"timezone": "Europe/Berlin"}}
        called = await client.call_tool("call_tool", arguments)
        bad = await client.call_tool("call_tool", {"name": "nope"}, raise_on_error=False)
    print(json.dumps({"before": tools, "found": found, "called": called.content[0].text, "bad": [bad.is_error]}))


asyncio.run(main(*sys.argv[1:]))
