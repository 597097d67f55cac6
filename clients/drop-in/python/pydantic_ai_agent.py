"""An agent of Pydantic AI."""

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-5.4-mini", provider=OpenAIProvider(base_url=f"{TOOLSCOUT}/v1"))


def tool(name: str, description: str, parameters: dict) -> Tool:
    return Tool.from_schema(lambda **arguments: call(name, arguments), name, description, parameters)


agent = Agent(model, tools=[tool(**one) for one in TOOLS])
history = []
for question in QUESTIONS:
    result = agent.run_sync(question, message_history=history)
    history = result.all_messages()
    print(result.output)
