"""Messages with the Anthropic SDK, as a stream."""

from anthropic import Anthropic
from company import QUESTIONS, TOOLS, TOOLSCOUT, call

client = Anthropic(base_url=TOOLSCOUT)

tools = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS]
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    while True:
        with client.messages.stream(model="claude-sonnet-5", max_tokens=1024, messages=messages, tools=tools) as stream:
            message = stream.get_final_message()
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            break
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": call(block.name, block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    print("".join(block.text for block in message.content if block.type == "text"))
