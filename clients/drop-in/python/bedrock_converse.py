"""Bedrock's Converse with the SDK of AWS. It signs requests with any access key, and the server has the key of Bedrock."""

import boto3
from company import QUESTIONS, TOOLS, TOOLSCOUT, call

client = boto3.client("bedrock-runtime", region_name="eu-north-1", endpoint_url=TOOLSCOUT)

tools = [
    {"toolSpec": {"name": tool["name"], "description": tool["description"], "inputSchema": {"json": tool["parameters"]}}}
    for tool in TOOLS
]
messages = []
for question in QUESTIONS:
    messages.append({"role": "user", "content": [{"text": question}]})
    while True:
        answer = client.converse(modelId="anthropic.claude-sonnet-5-v1:0", messages=messages, toolConfig={"tools": tools})
        message = answer["output"]["message"]
        messages.append(message)
        if answer["stopReason"] != "tool_use":
            break
        wanted = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        results = [
            {"toolResult": {"toolUseId": one["toolUseId"], "content": [{"text": call(one["name"], one["input"])}]}}
            for one in wanted
        ]
        messages.append({"role": "user", "content": results})
    print("".join(block.get("text", "") for block in message["content"]))
