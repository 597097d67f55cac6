"""The SDKs of Google, AWS and Azure OpenAI before the program and a provider that is played. Prints what was checked.

The provider's model does what the last question says, as JSON between << and >>: `wants` names tools, which it searches for where
they are not shown, all at once, and then calls, all at once; `fault` is what goes wrong in the answer (`refuse` or `cut`).

usage: clouds.py PROGRAM        NODE_FOLDER: where @google/genai is installed; without it its SDK and the examples are left out
                                EXAMPLES: the folder of the examples
"""

import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import botocore.config
import botocore.exceptions
import openai
from google import genai
from google.genai import types

KEY = "provider-key"
LIMIT_S = 30
ODD_SCHEMAS = [
    {"type": "object", "properties": {"to": {"type": ["string", "null"]}, "$ref": {"type": "string"}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}, "additionalProperties": False},
    {"type": "object", "properties": {}},
    {"type": "object", "$defs": {"x": {"enum": [1, "b", None]}}, "properties": {"x-y.z": {"$ref": "#/$defs/x"}}},
]
TOOLS = [
    {"name": f"{group}_{verb}", "description": f"{verb.capitalize()}s a {group} in the {group} service.", "schema": ODD_SCHEMAS[number % 4]}
    for number, (group, verb) in enumerate(
        (group, verb)
        for group in ("mail", "weather", "calendar", "invoice", "ticket", "photo", "parcel", "recipe", "flight", "hotel", "song", "garden")
        for verb in ("create", "delete", "list", "archive", "rename", "share", "export", "import", "pin", "lock", "merge", "split")
    )
]


class Refused(Exception):
    """What a provider answers with status 400."""


def require(condition, message):
    if not condition:
        raise Refused(message)


def script_of(text):
    return json.loads(text[text.rindex("<<") + 2 : text.rindex(">>")])


def decide(tools, messages):
    """`messages` are (role, text, calls, results): what the model says, as a text and calls."""
    asked = max(place for place, (role, text, _, _) in enumerate(messages) if role == "user" and "<<" in text)
    script = script_of(messages[asked][1])
    calls = [call for _, _, made, _ in messages[asked + 1 :] for call in made]
    results = [result for *_, given in messages[asked + 1 :] for result in given]
    require(len(results) == len(calls), f"{len(calls)} calls have {len(results)} results")
    called = [name for name, _ in calls]
    missing = [name for name in script["wants"] if name not in tools]
    if missing and "tool_search" not in called:
        return "Looking.", [("tool_search", {"query": name.replace("_", " a ")}) for name in missing], script
    wanted = [name for name in script["wants"] if name not in called]
    if wanted:
        return "", [(name, {"title": name}) for name in wanted], script
    own = [text for name, text in results if name != "tool_search"]
    return f"Done: {', '.join(own)}", [], script


class Gemini:
    errors = {429: {"error": {"code": 429, "message": "scripted 429", "status": "RESOURCE_EXHAUSTED"}}}
    key = "x-goog-api-key"

    def read(self, body):
        tools = [function for entry in body.get("tools", []) for function in entry.get("functionDeclarations", [])]
        messages = []
        for content in body["contents"]:
            parts = content["parts"]
            calls = [(part["functionCall"]["name"], part) for part in parts if "functionCall" in part]
            signed = [part.get("thoughtSignature") for _, part in calls]
            require(not calls or signed[0], "the first call of a round has lost its signature")
            results = []
            for part in parts:
                if response := part.get("functionResponse"):
                    given = response["response"]
                    results.append((response["name"], str(given.get("result", given.get("output")))))
            text = "".join(part.get("text", "") for part in parts)
            messages.append((content.get("role", "user"), text, calls, results))
        return [tool["name"] for tool in tools], messages

    def parts(self, text, calls):
        parts = [{"text": text}] if text else []
        for number, (name, args) in enumerate(calls):
            parts.append({"functionCall": {"name": name, "args": args}, **({} if number else {"thoughtSignature": "c2lnbmVk"})})
        return parts

    def frame(self, parts, finish=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **({"finishReason": finish} if finish else {})}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}

    def whole(self, text, calls):
        return self.frame(self.parts(text, calls), "STOP")

    def events(self, text, calls):
        frames = [self.frame([part]) for part in self.parts(text, calls)]
        frames.append(self.frame([{"text": ""}], "STOP"))
        return [f"data: {json.dumps(frame)}\r\n\r\n".encode() for frame in frames], "text/event-stream"


class Converse:
    errors = {429: {"message": "scripted 429", "__type": "ThrottlingException"}}
    key = "authorization"

    def read(self, body):
        tools = [entry["toolSpec"] for entry in body.get("toolConfig", {}).get("tools", [])]
        for tool in tools:
            require(set(tool) <= {"name", "description", "inputSchema", "strict"}, f"unknown fields: {tool}")
        messages, names = [], {}
        for place, message in enumerate(body["messages"]):
            require(message["role"] == ("user", "assistant")[place % 2], "roles must alternate")
            calls, results, text = [], [], ""
            for block in message["content"]:
                text += block.get("text", "")
                if call := block.get("toolUse"):
                    calls.append((call["name"], call))
                    names[call["toolUseId"]] = call["name"]
                if result := block.get("toolResult"):
                    results.append((names[result["toolUseId"]], result["content"][0]["text"]))
            messages.append((message["role"], text, calls, results))
        return [tool["name"] for tool in tools], messages

    def blocks(self, text, calls):
        blocks = [{"text": text}] if text else []
        ids = f"t{time.monotonic_ns()}"
        blocks += [{"toolUse": {"toolUseId": f"{ids}_{number}", "name": name, "input": args}} for number, (name, args) in enumerate(calls)]
        return blocks

    usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}

    def whole(self, text, calls):
        message = {"role": "assistant", "content": self.blocks(text, calls)}
        stop = "tool_use" if calls else "end_turn"
        return {"output": {"message": message}, "stopReason": stop, "usage": self.usage, "metrics": {"latencyMs": 1}}

    def events(self, text, calls):
        events = [("messageStart", {"role": "assistant"})]
        for index, block in enumerate(self.blocks(text, calls)):
            at = {"contentBlockIndex": index}
            if call := block.get("toolUse"):
                given = json.dumps(call["input"])
                events.append(("contentBlockStart", {**at, "start": {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}}))
                deltas = [{"toolUse": {"input": given[:4]}}, {"toolUse": {"input": given[4:]}}]
            else:
                deltas = [{"text": block["text"][:3]}, {"text": block["text"][3:]}]
            events += [("contentBlockDelta", {**at, "delta": delta}) for delta in deltas]
            events.append(("contentBlockStop", at))
        events.append(("messageStop", {"stopReason": "tool_use" if calls else "end_turn"}))
        events.append(("metadata", {"usage": self.usage, "metrics": {"latencyMs": 1}}))
        return [aws_message(*event) for event in events], "application/vnd.amazon.eventstream"


def aws_message(name, payload):
    headers = b""
    for key, value in ((":event-type", name), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


class Chat:
    errors = {429: {"error": {"message": "scripted 429", "type": "rate_limit", "code": "429", "param": None}}}
    key = "api-key"

    def read(self, body):
        messages, names = [], {}
        for message in body["messages"]:
            calls = [(call["function"]["name"], call) for call in message.get("tool_calls") or []]
            names.update({call["id"]: name for name, call in calls})
            results = [(names[message["tool_call_id"]], message["content"])] if message["role"] == "tool" else []
            messages.append((message["role"], message.get("content") or "", calls, results))
        return [tool["function"]["name"] for tool in body.get("tools", [])], messages

    def choice(self, field, text, calls, finish):
        ids = f"c{time.monotonic_ns()}"
        made = [
            {"index": number, "id": f"{ids}_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for number, (name, args) in enumerate(calls)
        ]
        said = {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
        kind = "chat.completion.chunk" if field == "delta" else "chat.completion"
        return {"id": "c", "object": kind, "created": 1, "model": "m", "choices": [{"index": 0, field: said, "finish_reason": finish}]}

    def whole(self, text, calls):
        return self.choice("message", text, calls, "tool_calls" if calls else "stop")

    def events(self, text, calls):
        frames = [self.choice("delta", text, calls, None), self.choice("delta", "", [], "tool_calls" if calls else "stop")]
        return [f"data: {json.dumps(frame)}\n\n".encode() for frame in frames] + [b"data: [DONE]\n\n"], "text/event-stream"


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    complaints = []
    rounds = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.split("?")[0]
        if path.startswith("/v1beta/models/"):
            dialect, streams = Gemini(), path.endswith(":streamGenerateContent")
        elif path.startswith("/model/"):
            dialect, streams = Converse(), path.endswith("/converse-stream")
        elif path == "/openai/deployments/gpt/chat/completions" and "api-version=" in self.path:
            dialect, streams = Chat(), body.get("stream", False)
        else:
            self.complaints.append(f"no such path: {self.path}")
            return self.send(404, {"message": "no such path"})
        if self.headers.get(dialect.key, "").removeprefix("Bearer ") != KEY:
            self.complaints.append(f"{path}: the key is {self.headers.get(dialect.key)!r}")
        try:
            tools, messages = dialect.read(body)
            text, calls, script = decide(tools, messages)
        except Refused as refused:
            self.complaints.append(f"{path}: {refused}")
            return self.send(400, {"message": str(refused), "error": {"message": str(refused), "code": 400}})
        self.rounds.append((path, len(tools), [name for name, _ in calls]))
        fault = script.get("fault") if not calls else None
        if fault == "refuse":
            return self.send(429, dialect.errors[429])
        if not streams:
            return self.send(200, dialect.whole(text, calls))
        frames, content_type = dialect.events(text, calls)
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("connection", "close")
        self.end_headers()
        whole = b"".join(frames)
        self.wfile.write(whole[: len(whole) // 2] if fault == "cut" else whole)
        self.close_connection = True

    def send(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def asking(wants, fault=None):
    return f"Please. <<{json.dumps({'wants': wants, 'fault': fault})}>>"


def result_of(name):
    return f"{name} went well"


QUESTIONS = [["mail_create", "weather_list"], ["mail_create", "hotel_merge", "song_split"], ["garden_lock"]]


def expected(wants):
    return f"Done: {', '.join(result_of(name) for name in wants)}"


class GeminiClient:
    def __init__(self, url, streams):
        self.client = genai.Client(api_key="unused", http_options=types.HttpOptions(base_url=url, timeout=LIMIT_S * 1000))
        declarations = [types.FunctionDeclaration(name=tool["name"], description=tool["description"], parameters_json_schema=tool["schema"]) for tool in TOOLS]
        off = types.AutomaticFunctionCallingConfig(disable=True)
        self.config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declarations)], automatic_function_calling=off)
        self.streams = streams
        self.contents = []

    def ask(self, question):
        self.contents.append(types.UserContent(question))
        while True:
            contents, text, calls = self.round()
            self.contents += contents
            if not calls:
                return text
            responses = [types.Part.from_function_response(name=call.name, response={"result": result_of(call.name)}) for call in calls]
            self.contents.append(types.UserContent(responses))

    def round(self):
        asked = {"model": "m", "contents": self.contents, "config": self.config}
        if not self.streams:
            answer = self.client.models.generate_content(**asked)
            return [answer.candidates[0].content], answer.text, answer.function_calls
        chunks = list(self.client.models.generate_content_stream(**asked))
        calls = [call for chunk in chunks for call in chunk.function_calls or []]
        text = "".join(part.text or "" for chunk in chunks for part in chunk.candidates[0].content.parts or [])
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
        return [types.ModelContent(parts)], text, calls

    error = genai.errors.APIError

    def is_limit(self, error):
        return error.code == 429


class GeminiAsync(GeminiClient):
    def round(self):
        return asyncio.run(self.around())

    async def around(self):
        # A client of its own, because it belongs to the loop of its requests.
        client = genai.Client(api_key="unused", http_options=self.client._api_client._http_options)
        answer = await client.aio.models.generate_content(model="m", contents=self.contents, config=self.config)
        return [answer.candidates[0].content], answer.text, answer.function_calls


class GeminiChat(GeminiClient):
    """The SDK keeps the history itself."""

    def ask(self, question):
        self.chat = getattr(self, "chat", None) or self.client.chats.create(model="m", config=self.config)
        message = question
        while True:
            if self.streams:
                chunks = list(self.chat.send_message_stream(message))
            else:
                chunks = [self.chat.send_message(message)]
            calls = [call for chunk in chunks for call in chunk.function_calls or []]
            if not calls:
                return "".join(chunk.text or "" for chunk in chunks)
            message = [types.Part.from_function_response(name=call.name, response={"result": result_of(call.name)}) for call in calls]


class BedrockClient:
    error = (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)

    def __init__(self, url, streams):
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=LIMIT_S)
        self.client = boto3.client("bedrock-runtime", region_name="eu-north-1", endpoint_url=url, config=config)
        self.tools = [{"toolSpec": {"name": tool["name"], "description": tool["description"], "inputSchema": {"json": tool["schema"]}}} for tool in TOOLS]
        self.streams = streams
        self.messages = []

    def ask(self, question):
        self.messages.append({"role": "user", "content": [{"text": question}]})
        while True:
            message, stop = self.round()
            self.messages.append(message)
            calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
            assert stop == ("tool_use" if calls else "end_turn"), stop
            if not calls:
                return "".join(block.get("text", "") for block in message["content"]).removeprefix("Looking.")
            results = [{"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": result_of(call["name"])}]}} for call in calls]
            self.messages.append({"role": "user", "content": results})

    def round(self):
        asked = {"modelId": "eu.anthropic.m-v1:0", "messages": self.messages, "toolConfig": {"tools": self.tools}}
        if not self.streams:
            answer = self.client.converse(**asked)
            return answer["output"]["message"], answer["stopReason"]
        blocks, stop, seen = {}, None, []
        for event in self.client.converse_stream(**asked)["stream"]:
            if start := event.get("contentBlockStart"):
                blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
            if delta := event.get("contentBlockDelta"):
                given = delta["delta"]
                block = blocks.setdefault(delta["contentBlockIndex"], {"text": ""})
                if "text" in given:
                    block["text"] += given["text"]
                else:
                    block["toolUse"]["input"] += given["toolUse"]["input"]
            stop = event.get("messageStop", {}).get("stopReason", stop)
            seen.append(next(iter(event)))
        assert seen[0] == "messageStart" and seen[-1] == "metadata", seen
        assert sorted(blocks) == list(range(len(blocks))), blocks
        for block in blocks.values():
            if call := block.get("toolUse"):
                call["input"] = json.loads(call["input"])
        return {"role": "assistant", "content": list(blocks.values())}, stop

    def is_limit(self, error):
        return error.response["Error"]["Code"] == "ThrottlingException" and "scripted 429" in str(error)


class AzureClient:
    error = (openai.APIError,)

    def __init__(self, url, streams):
        self.client = openai.AzureOpenAI(azure_endpoint=url, api_key="unused", api_version="2024-10-21", max_retries=0, timeout=LIMIT_S)
        self.tools = [{"type": "function", "function": {"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]}} for tool in TOOLS]
        self.streams = streams
        self.messages = []

    def ask(self, question):
        self.messages.append({"role": "user", "content": question})
        while True:
            asked = {"model": "gpt", "messages": self.messages, "tools": self.tools}
            if self.streams:
                with self.client.chat.completions.stream(**asked) as stream:
                    message = stream.get_final_completion().choices[0].message
            else:
                message = self.client.chat.completions.create(**asked).choices[0].message
            self.messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result_of(call.function.name)})

    def is_limit(self, error):
        return isinstance(error, openai.RateLimitError)


def told(answer):
    """Without what the model said before it searched."""
    return answer.removeprefix("Looking.").strip()


def conversation(kind, url, streams):
    client = kind(url, streams)
    Provider.rounds.clear()
    for wants in QUESTIONS:
        answer = told(client.ask(asking(wants)))
        assert answer == expected(wants), (answer, expected(wants))
    most = max(tools for _, tools, _ in Provider.rounds)
    assert most < 40, f"{most} tools were shown"
    searches = sum(calls.count("tool_search") for _, _, calls in Provider.rounds)
    assert searches >= 4, Provider.rounds
    return f"{len(Provider.rounds)} rounds, {searches} searches, at most {most} tools were shown"


def faults(kind, url, streams):
    client = kind(url, streams)
    try:
        client.ask(asking(["mail_create"], "refuse"))
        raise AssertionError("it did not fail")
    except client.error as error:
        assert client.is_limit(error), error
    if not streams:
        return "a refusal"
    try:
        client = kind(url, streams)
        answer = client.ask(asking(["mail_create"], "cut"))
        raise AssertionError(f"a stream that was cut gave {answer!r}")
    except AssertionError:
        raise
    except Exception as error:
        return f"a refusal, and a cut stream: {type(error).__name__}"


def in_node(url):
    asked = [asking(wants) for wants in QUESTIONS]
    given = json.dumps({"url": url, "tools": TOOLS, "questions": asked, "refused": asking(["mail_create"], "refuse"), "cut": asking(["mail_create"], "cut")})
    done = subprocess.run(["node", "genai_ways.mjs"], input=given, cwd=os.environ["NODE_FOLDER"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for way in ("whole", "stream"):
        answers = [told(answer) for answer in seen[way]]
        assert answers == [expected(wants) for wants in QUESTIONS], answers
    assert seen["refused"] == 429, seen
    assert seen["cut"], seen
    return "whole and streamed, a refusal and a cut stream"


def example(words, url, folder):
    """A program that people copy."""
    tools = os.path.join(folder, "tools.json")
    with open(tools, "w", encoding="utf-8") as file:
        json.dump([{"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]} for tool in TOOLS], file)
    key = {name: "unused" for name in ("GEMINI_API_KEY", "AZURE_OPENAI_API_KEY")}
    words = [*words, tools, *map(asking, QUESTIONS)]
    done = subprocess.run(words, cwd=os.environ["NODE_FOLDER"], env={**os.environ, **key, "TOOLSCOUT_URL": url}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = [told(line) for line in done.stdout.splitlines() if line and line != "Looking."]
    wanted = [f"Done: {', '.join(f'{name}({name})' for name in wants)}" for wants in QUESTIONS]
    assert answers == wanted, answers
    return f"{len(answers)} answers"


def main():
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{provider.server_port}"
    # The SDK of AWS sends bearer keys over TLS only.
    os.environ.update({"AWS_ACCESS_KEY_ID": "AKIAUNUSED", "AWS_SECRET_ACCESS_KEY": "unused", "AWS_EC2_METADATA_DISABLED": "true"})
    failed = 0
    with tempfile.TemporaryDirectory() as data:
        words = [sys.argv[1], "--data", data, "--embedder", "none", "serve", "--listen", "127.0.0.1:0", "--log", "warn", "--llm", f"{at}/v1"]
        for name, base in (("gemini", "/v1beta"), ("azure", "/openai"), ("bedrock", "")):
            words += [f"--llm-{name}", f"{at}{base}", f"--llm-{name}-key", KEY]
        words += ["--defer-above", "2000"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip().removeprefix("listening on ")
            until_ready(url)
            checks = []
            for kind in (GeminiClient, GeminiChat, BedrockClient, AzureClient):
                for streams in (False, True):
                    way = f"{kind.__name__}{', streamed' if streams else ''}"
                    checks.append((way, lambda kind=kind, streams=streams: conversation(kind, url, streams)))
                    if kind is not GeminiChat:
                        checks.append((f"{way}: faults", lambda kind=kind, streams=streams: faults(kind, url, streams)))
            checks.append(("GeminiAsync", lambda: conversation(GeminiAsync, url, False)))
            if os.environ.get("NODE_FOLDER"):
                checks.append(("@google/genai", lambda: in_node(url)))
                for name in ("google_genai", "bedrock_converse", "azure_openai"):
                    words = [sys.executable, os.path.join(os.environ["EXAMPLES"], "python", f"{name}.py")]
                    checks.append((f"example: {name}.py", lambda words=words: example(words, url, data)))
                checks.append(("example: google_genai.ts", lambda: example(["node", "google_genai.js"], url, data)))
            for name, check in checks:
                Provider.complaints.clear()
                try:
                    figures = check()
                    assert not Provider.complaints, Provider.complaints[:3]
                    print(f"ok: {name}: {figures}", flush=True)
                except Exception as error:
                    failed += 1
                    print(f"failed: {name}: {type(error).__name__}: {error}; {Provider.complaints[:3]}", file=sys.stderr, flush=True)
        finally:
            server.terminate()
            server.wait()
    return 1 if failed else 0


def until_ready(url):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"{url}/readyz").status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the server is not ready")


sys.exit(main())
