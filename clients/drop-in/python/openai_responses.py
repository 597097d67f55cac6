"""Responses with the OpenAI SDK, which the provider remembers."""

import json

from company import QUESTIONS, TOOLS, TOOLSCOUT, call
from openai import OpenAI

client = OpenAI(base_url=f"{TOOLSCOUT}/v1")

tools = [{"type": "function", "strict": False, **tool} for tool in TOOLS]
previous = None
for question in QUESTIONS:
    new = [{"role": "user", "content": question}]
    while new:
        response = client.responses.create(model="gpt-5.4-mini", input=new, tools=tools, previous_response_id=previous)
        previous = response.id
        new = []
        for item in response.output:
            if item.type == "function_call":
                result = call(item.name, json.loads(item.arguments))
                new.append({"type": "function_call_output", "call_id": item.call_id, "output": result})
    print(response.output_text)
