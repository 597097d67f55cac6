from common import PROMPT, TOOLS, URL, called
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


def tool(definition):
    name = definition["name"]
    return StructuredTool.from_function(
        func=lambda **_: called(name),
        name=name,
        description=definition["description"],
        args_schema=definition["inputSchema"],
    )


model = ChatOpenAI(base_url=f"{URL}/v1", model="gpt-5.4-mini", streaming=True)
agent = create_react_agent(model, [tool(definition) for definition in TOOLS])
print(agent.invoke({"messages": [("user", PROMPT)]}, {"recursion_limit": 60})["messages"][-1].content)
