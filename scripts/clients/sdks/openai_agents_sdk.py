import asyncio
import sys

from agents import Agent, FunctionTool, Runner, set_default_openai_api, set_default_openai_client, set_tracing_disabled
from common import PROMPT, TOOLS, URL, called
from openai import AsyncOpenAI

set_tracing_disabled(True)
set_default_openai_client(AsyncOpenAI(base_url=f"{URL}/v1"))
set_default_openai_api("responses" if sys.argv[3] == "responses" else "chat_completions")


def tool(definition):
    async def invoke(_context, _arguments):
        return called(definition["name"])

    return FunctionTool(
        name=definition["name"],
        description=definition["description"],
        params_json_schema=definition["inputSchema"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


async def main():
    agent = Agent(name="office", model="gpt-5.4-mini", tools=[tool(definition) for definition in TOOLS])
    result = Runner.run_streamed(agent, PROMPT, max_turns=20)
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
