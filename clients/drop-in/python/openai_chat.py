"""Chat completions with the OpenAI SDK."""

import json

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from openai import OpenAI

client = OpenAI(base_url=f"{TOOLSCOUT}/v1")

tools = [{"type": "function", "function": tool} for tool in TOOLS]
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    while True:
        completion = client.chat.completions.create(model="gpt-5.4-mini", messages=messages, tools=tools)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for wanted in message.tool_calls:
            result = call(wanted.function.name, json.loads(wanted.function.arguments))
            messages.append({"role": "tool", "tool_call_id": wanted.id, "content": result})
    print(message.content)
