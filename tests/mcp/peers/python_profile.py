"""Speaks to a profile of toolscout with the Python SDK, whose person says yes, and prints what it saw as a line of JSON.

    python_profile.py MODE URL KEY OWN OTHER

MODE is `legacy` for the handshake, `auto` for the newest protocol both sides speak. OWN is a server of the profile, OTHER
one outside of it.
"""

import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from profile_report import print_report


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

        await print_report(text, (await client.list_tools()).tools, own, other, asked)


asyncio.run(main(*sys.argv[1:]))
