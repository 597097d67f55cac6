"""An agent of LangChain."""

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url=f"{TOOLSCOUT}/v1", model="gpt-5.4-mini")


def tool(name: str, description: str, parameters: dict) -> StructuredTool:
    return StructuredTool.from_function(
        lambda **arguments: call(name, arguments), name=name, description=description, args_schema=parameters
    )


agent = create_agent(model, tools=[tool(**one) for one in TOOLS])
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    messages = agent.invoke({"messages": messages})["messages"]
    print(messages[-1].text)
