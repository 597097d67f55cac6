"""A FastMCP server with 1,000 generated tools and one that adds another.

    fastmcp_server.py [PORT]        over standard streams, or streamable HTTP on that port
"""

import sys

from fastmcp import Context, FastMCP

TOPICS = ["invoices", "parcels", "tickets", "holidays", "sensors", "recipes", "patients", "flights", "songs", "trees"]
VERBS = ["list", "create", "update", "delete", "count", "export", "archive", "merge", "tag", "find"]
REGIONS = ["north", "south", "east", "west", "centre", "coast", "hills", "islands", "valley", "city"]

server = FastMCP("generated")


def generated(verb, topic, region):
    def tool(text: str = "") -> str:
        return f"{verb} {topic} {region} {text}".strip()

    tool.__name__ = f"{verb}_{topic}_{region}"
    tool.__doc__ = f"{verb.capitalize()} {topic} of the {region} branch."
    return tool


for verb in VERBS:
    for topic in TOPICS:
        for region in REGIONS:
            server.tool(generated(verb, topic, region))


@server.tool
async def grow(context: Context) -> str:
    """Adds a tool to this server."""
    server.tool(generated("photograph", "comets", "sky"))
    await context.session.send_tool_list_changed()
    return "grown"


if len(sys.argv) > 1:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="warning")
else:
    server.run(show_banner=False)
