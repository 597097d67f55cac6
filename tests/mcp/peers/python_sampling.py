"""Lets toolscout ask the model of a client, with the Python SDK, and prints what was asked as one line of JSON.

    python_sampling.py ANSWER COMMAND [ARGUMENT ...]

ANSWER is what the person says to the question: `yes`, `unticked`, `no`, or `refuse`, which agrees and then refuses each
request of the model. The client stays until its model was asked, or for a while.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client, types

PATIENCE = 20.0


async def main(answer, command, *arguments):
    questions, prompts = [], []

    async def elicit(context, params):
        questions.append(params.message)
        if answer == "no":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"write": answer != "unticked"})

    async def sample(context, params):
        prompts.append(params.messages[0].content.text)
        if answer == "refuse":
            return types.ErrorData(code=-1, message="the person refused it")
        tools = json.loads(prompts[-1])
        texts = {str(tool["number"]): [f"somebody needs thing {len(tool['tool'])}"] for tool in tools}
        content = types.TextContent(type="text", text=json.dumps(texts))
        return types.CreateMessageResult(role="assistant", content=content, model="fake", stop_reason="endTurn")

    env = {name: value for name, value in os.environ.items() if name.startswith("TOOLSCOUT_") or name == "PATH"}
    server = stdio_client(StdioServerParameters(command=command, args=list(arguments), env=env))
    async with Client(server, mode="legacy", sampling_callback=sample, elicitation_callback=elicit) as client:
        for _ in range(int(PATIENCE / 0.1)):
            if questions and (answer in ("no", "unticked") or prompts):
                break
            await asyncio.sleep(0.1)
        # What was answered last is stored before the next call is answered.
        await asyncio.sleep(0.5)
        await client.list_tools()
    print(json.dumps({"questions": questions, "prompts": len(prompts)}))


asyncio.run(main(*sys.argv[1:]))
