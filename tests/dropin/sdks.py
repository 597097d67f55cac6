"""Conversations over the Python SDKs in every way they have to ask: whole, as a stream, by a helper, async.

Reads cases as JSON, one a line: `mode`, `questions`, `key`, `retries`, `model`. Prints for each what the client saw, as JSON: the
answers, or the error.
"""

import asyncio
import json
import os
import sys

import anthropic
import openai
from pydantic import BaseModel

URL = os.environ["TOOLSCOUT_URL"]
LIMIT_S = 60

with open(sys.argv[1], encoding="utf-8") as file:
    TOOLS = json.load(file)


class ResponseErrorEvent(Exception):
    """The Responses API ends a stream that fails with an event, which the SDK gives as it is."""


class Report(BaseModel):
    title: str
    count: int


def call(name, arguments):
    return f"{name}({', '.join(str(value) for value in arguments.values())})"


class Chat:
    """A conversation of chat completions; `ask` is one way to get the next message."""

    strict = False

    def __init__(self, client):
        self.client = client
        self.messages = []
        strict = {"strict": True} if self.strict else {}
        self.tools = [{"type": "function", "function": {**tool, **strict}} for tool in TOOLS]

    def user(self, text):
        self.messages.append({"role": "user", "content": text})

    @property
    def request(self):
        return {"model": self.model or "gpt-5.4-mini", "messages": self.messages, "tools": self.tools}

    async def turn(self):
        message = await self.ask()
        self.messages.append(message)
        for wanted in message.tool_calls or []:
            result = call(wanted.function.name, json.loads(wanted.function.arguments))
            self.messages.append({"role": "tool", "tool_call_id": wanted.id, "content": result})
        return None if message.tool_calls else message.content


class ChatCreate(Chat):
    async def ask(self):
        return self.client.chat.completions.create(**self.request).choices[0].message


class ChatRawStream(Chat):
    async def ask(self):
        text, calls, finish = "", [], None
        options = {"include_usage": True}
        usages = 0
        async for chunk in await self.client.chat.completions.create(**self.request, stream=True, stream_options=options):
            usages += chunk.usage is not None
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for piece in choice.delta.tool_calls or []:
                    if piece.index == len(calls):
                        calls.append({"id": piece.id, "type": "function", "function": {"name": piece.function.name, "arguments": ""}})
                    calls[piece.index]["function"]["arguments"] += piece.function.arguments
        assert finish == ("tool_calls" if calls else "stop"), finish
        assert usages == 1, f"{usages} chunks with usage"
        message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        return openai.types.chat.ChatCompletionMessage.model_validate(message)


class ChatParse(Chat):
    strict = True

    async def ask(self):
        completion = self.client.chat.completions.parse(**self.request, response_format=Report)
        message = completion.choices[0].message
        for wanted in message.tool_calls or []:
            assert isinstance(wanted.function.parsed_arguments, dict), wanted
        if not message.tool_calls:
            assert isinstance(message.parsed, Report), message
        return message


class ChatStream(Chat):
    strict = True

    async def ask(self):
        async with self.client.chat.completions.stream(**self.request, response_format=Report) as stream:
            async for _event in stream:
                pass
            completion = await stream.get_final_completion()
        message = completion.choices[0].message
        if not message.tool_calls:
            assert isinstance(message.parsed, Report), message
        return message


class Responses:
    strict = False

    def __init__(self, client):
        self.client = client
        self.input = []
        self.tools = [{"type": "function", "strict": self.strict, **tool} for tool in TOOLS]

    def user(self, text):
        self.input.append({"role": "user", "content": text})

    @property
    def request(self):
        return {"model": self.model or "gpt-5.4-mini", "input": self.input, "tools": self.tools}

    async def turn(self):
        response = await self.ask()
        assert response.status == "completed", response.status
        self.input += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in self.kept(response)]
        calls = [item for item in response.output if item.type == "function_call"]
        for item in calls:
            result = call(item.name, json.loads(item.arguments))
            self.input.append({"type": "function_call_output", "call_id": item.call_id, "output": result})
        return None if calls else response.output_text

    def kept(self, response):
        return response.output


class ResponsesCreate(Responses):
    async def ask(self):
        return await self.client.responses.create(**self.request)


class ResponsesRawStream(Responses):
    async def ask(self):
        text, arguments, numbers, done, final = "", {}, [], [], None
        for event in self.client.responses.create(**self.request, stream=True):
            numbers.append(event.sequence_number)
            assert numbers == sorted(set(numbers)), f"sequence numbers are not in order: {numbers}"
            if event.type == "error":
                raise ResponseErrorEvent(event.message)
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.function_call_arguments.delta":
                arguments[event.item_id] = arguments.get(event.item_id, "") + event.delta
            if event.type == "response.output_item.done":
                assert event.output_index == len(done), f"item {event.output_index} came after {len(done)} others"
                done.append(event.item)
            if event.type == "response.completed":
                final = event.response
        assert text == final.output_text, (text, final.output_text)
        assert [item.id for item in done] == [item.id for item in final.output]
        for item in final.output:
            assert item.type != "function_call" or arguments[item.id] == item.arguments, item
        return final


class ResponsesParse(Responses):
    strict = True

    async def ask(self):
        response = self.client.responses.parse(**self.request, text_format=Report)
        if not any(item.type == "function_call" for item in response.output):
            assert isinstance(response.output_parsed, Report), response
        return response

    def kept(self, response):
        return without_parsed(response)


class ResponsesStream(Responses):
    strict = True

    async def ask(self):
        async with self.client.responses.stream(**self.request, text_format=Report) as stream:
            async for _event in stream:
                pass
            return await stream.get_final_response()

    def kept(self, response):
        return without_parsed(response)


def without_parsed(response):
    """What the SDK added to a response's items does not go back."""
    for item in response.output:
        for part in getattr(item, "content", None) or []:
            part.parsed = None
    return response.output


class Messages:
    def __init__(self, client):
        self.client = client
        self.messages = []
        self.tools = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS]

    def user(self, text):
        self.messages.append({"role": "user", "content": text})

    @property
    def request(self):
        return {"model": self.model or "claude-sonnet-5", "max_tokens": 1024, "messages": self.messages, "tools": self.tools}

    async def turn(self):
        message = await self.ask()
        calls = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn"), message.stop_reason
        kept = [block.model_dump(include={"type", "text", "id", "name", "input", "thinking", "signature"}) for block in message.content]
        self.messages.append({"role": "assistant", "content": kept})
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": call(block.name, block.input)} for block in calls]
        self.messages.append({"role": "user", "content": results})
        return None


class MessagesCreate(Messages):
    async def ask(self):
        return await self.client.messages.create(**self.request)


class MessagesRawStream(Messages):
    async def ask(self):
        blocks, pieces, stop = [], [], None
        for event in self.client.messages.create(**self.request, stream=True):
            if event.type == "message_start":
                message = event.message
            elif event.type == "content_block_start":
                assert event.index == len(blocks), f"block {event.index} came after {len(blocks)} others"
                blocks.append(event.content_block)
                pieces.append("")
            elif event.type == "content_block_delta":
                pieces[event.index] += getattr(event.delta, "text", None) or getattr(event.delta, "partial_json", None) or ""
            elif event.type == "message_delta":
                stop = event.delta.stop_reason
        for block, text in zip(blocks, pieces):
            if block.type == "text":
                block.text = text
            else:
                block.input = json.loads(text)
        message.content, message.stop_reason = blocks, stop
        return message


class MessagesStream(Messages):
    async def ask(self):
        async with self.client.messages.stream(**self.request) as stream:
            async for _event in stream:
                pass
            return await stream.get_final_message()


class MessagesParse(Messages):
    async def ask(self):
        message = self.client.messages.parse(**self.request, output_format=Report)
        if message.stop_reason == "end_turn":
            assert isinstance(message.parsed_output, Report), message
        return message


MODES = {
    "chat.completions.create": (openai.OpenAI, ChatCreate),
    "chat.completions.create, stream, async": (openai.AsyncOpenAI, ChatRawStream),
    "chat.completions.parse": (openai.OpenAI, ChatParse),
    "chat.completions.stream, async": (openai.AsyncOpenAI, ChatStream),
    "responses.create, async": (openai.AsyncOpenAI, ResponsesCreate),
    "responses.create, stream": (openai.OpenAI, ResponsesRawStream),
    "responses.parse": (openai.OpenAI, ResponsesParse),
    "responses.stream, async": (openai.AsyncOpenAI, ResponsesStream),
    "messages.create, async": (anthropic.AsyncAnthropic, MessagesCreate),
    "messages.create, stream": (anthropic.Anthropic, MessagesRawStream),
    "messages.stream, async": (anthropic.AsyncAnthropic, MessagesStream),
    "messages.parse": (anthropic.Anthropic, MessagesParse),
}


async def converse(case):
    make, way = MODES[case["mode"]]
    url = URL if make.__module__.startswith("anthropic") else f"{URL}/v1"
    client = make(base_url=url, api_key=case["key"], max_retries=case.get("retries", 0), timeout=LIMIT_S)
    conversation, answers = way(client), []
    conversation.model = case.get("model")
    try:
        for question in case["questions"]:
            conversation.user(question)
            answer = None
            while answer is None:
                answer = await conversation.turn()
            answers.append(answer)
    finally:
        closed = client.close()
        if closed is not None:
            await closed
    return {"answers": answers}


def told(error):
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__.split(".")[0] in ("openai", "anthropic", "__main__")]
    return {"error": type(error).__name__, "kinds": kinds, "status": getattr(error, "status_code", None), "message": str(error)[:400]}


async def main():
    for line in sys.stdin:
        case = json.loads(line)
        try:
            seen = await converse(case)
        except Exception as error:  # Every kind is what is asked for.
            seen = told(error)
        print(json.dumps({"mode": case["mode"], **seen}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
