from common import PROMPT, TOOLS, URL, called
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def tool(definition):
    name = definition["name"]
    return Tool.from_schema(
        lambda **_: called(name),
        name=name,
        description=definition["description"],
        json_schema=definition["inputSchema"],
    )


model = OpenAIChatModel("gpt-5.4-mini", provider=OpenAIProvider(base_url=f"{URL}/v1"))
agent = Agent(model, tools=[tool(definition) for definition in TOOLS])
print(agent.run_sync(PROMPT).output)
