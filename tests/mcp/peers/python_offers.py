"""Uses what a server offers besides tools, with the Python SDK, and prints what came as one line of JSON.

    python_offers.py MODE PREFIX COMMAND [ARGUMENT ...]

MODE is `legacy` or `auto`, where servers of the newest protocol are asked nothing during a call. PREFIX is what the names of prompts begin with, empty for the server itself. With one, tools are called through
`call_tool`. The person gives a name and a colour, and the model answers "sampled".
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client, types

ASKS = {"trigger-elicitation-request": {}, "trigger-sampling-request": {"prompt": "hi", "maxTokens": 5}}


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada", "color": "red"})


async def sample(context, params):
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=content, model="fake", stop_reason="endTurn")


def plain(model):
    """The fields that a server sends, without what a gateway adds."""
    fields = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = fields.get("_meta", {})
    meta.pop("toolscout", None)
    return {name: value for name, value in fields.items() if name != "_meta" or meta}


async def main(mode, prefix, command, *arguments):
    env = {name: value for name, value in os.environ.items() if name.startswith("TOOLSCOUT_") or name == "PATH"}
    server = stdio_client(StdioServerParameters(command=command, args=list(arguments), env=env))
    async with Client(server, mode=mode, sampling_callback=sample, elicitation_callback=elicit) as client:
        report = {"prompts": [], "resources": [], "templates": [], "read": [], "said": []}
        for prompt in (await client.list_prompts()).prompts:
            fields = plain(prompt)
            fields["name"] = fields["name"].removeprefix(prefix)
            report["prompts"].append(fields)
            filled = {argument.name: "1" for argument in prompt.arguments or []}
            try:
                got = await client.get_prompt(prompt.name, filled)
                report["read"].append([plain(message) for message in got.messages])
            except Exception as error:
                report["read"].append(type(error).__name__)
        for resource in (await client.list_resources()).resources:
            report["resources"].append(plain(resource))
            read = await client.read_resource(resource.uri)
            report["read"].append([plain(content) for content in read.contents])
        for template in (await client.list_resource_templates()).resource_templates:
            report["templates"].append(plain(template))
            read = await client.read_resource(template.uri_template.replace("{resourceId}", "1"))
            # The text has the time.
            report["read"].append([content.uri for content in read.contents])
        for tool, given in ASKS.items() if mode == "legacy" else ():
            if prefix:
                server_name = prefix.removesuffix("__")
                tool, given = "call_tool", {"name": f"{server_name}/{tool}", "arguments": given}
            result = await client.call_tool(tool, given)
            report["said"].append([plain(content) for content in result.content])
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
