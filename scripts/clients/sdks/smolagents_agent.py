from common import PROMPT, TOOLS, URL, called
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent


def tool(definition):
    name = definition["name"]
    properties = definition["inputSchema"]["properties"]
    inputs = {key: {**value, "nullable": True} for key, value in properties.items()}

    class OfficeTool(Tool):
        skip_forward_signature_validation = True
        output_type = "string"

        def forward(self, **_):
            return called(name)

    OfficeTool.name = name
    OfficeTool.description = definition["description"]
    OfficeTool.inputs = inputs
    return OfficeTool()


model = OpenAIServerModel("gpt-5.4-mini", api_base=f"{URL}/v1", api_key="key")
agent = ToolCallingAgent(tools=[tool(definition) for definition in TOOLS], model=model, max_steps=6)
print(agent.run(PROMPT))
