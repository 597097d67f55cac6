"""An agent of the OpenAI Agents SDK."""

import json

from agents import Agent, FunctionTool, Runner, set_default_openai_client, set_tracing_disabled
from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from openai import AsyncOpenAI

set_default_openai_client(AsyncOpenAI(base_url=f"{TOOLSCOUT}/v1"))
# Traces would go to OpenAI.
set_tracing_disabled(True)


def tool(name: str, description: str, parameters: dict) -> FunctionTool:
    async def invoke(_context, arguments: str) -> str:
        return call(name, json.loads(arguments))

    return FunctionTool(name, description, parameters, invoke)


agent = Agent("Clerk", model="gpt-5.4-mini", tools=[tool(**one) for one in TOOLS])
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    result = Runner.run_sync(agent, messages)
    messages = result.to_input_list()
    print(result.final_output)
