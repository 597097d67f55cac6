"""Azure OpenAI with OpenAI's SDK. `AZURE_OPENAI_API_KEY` has the key."""

import json

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from openai import AzureOpenAI

client = AzureOpenAI(azure_endpoint=TOOLSCOUT, api_version="2024-10-21")

tools = [{"type": "function", "function": tool} for tool in TOOLS]
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    while True:
        message = client.chat.completions.create(model="gpt", messages=messages, tools=tools).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for wanted in message.tool_calls:
            result = call(wanted.function.name, json.loads(wanted.function.arguments))
            messages.append({"role": "tool", "tool_call_id": wanted.id, "content": result})
    print(message.content)
