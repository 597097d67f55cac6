"""Speaks to a profile of toolscout with FastMCP's client, whose person says yes, and prints what it saw as a line of JSON.

    fastmcp_profile.py URL KEY OWN OTHER

OWN is a server of the profile, OTHER one outside of it.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from profile_report import print_report


async def main(url, key, own, other):
    asked = []

    async def says_yes(message, response_type, params, context):
        asked.append(message)
        return {"approve": True}

    transport = StreamableHttpTransport(url=url, headers={"Authorization": f"Bearer {key}"})
    async with Client(transport, elicitation_handler=says_yes) as client:

        async def text(name, arguments):
            return (await client.call_tool(name, arguments, raise_on_error=False)).content[0].text

        await print_report(text, await client.list_tools(), own, other, asked)


asyncio.run(main(*sys.argv[1:]))
