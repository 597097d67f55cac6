"""A played provider of models: chat completions, responses and messages, whole or as streams. It notes each request in
a list: its path, the tools that it was shown, and what the model did."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import model


class Provider:
    def __init__(self):
        self.requests = []
        handler = type("Handler", (Handler,), {"provider": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def note(self, path, tools, body, call):
        name = call and call[0]["name"]
        self.requests.append(
            {"path": path, "tools": [tool["name"] for tool in tools], "bytes": len(body), "call": name}
        )

    def end(self):
        self.server.shutdown()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send(
            200, {"object": "list", "data": [{"id": "scripted", "object": "model", "created": 1, "owned_by": "me"}]}
        )

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.split("?")[0].removeprefix("/v1")
        dialect = {"/chat/completions": Chat, "/responses": Responses, "/messages": Messages}.get(path)
        if dialect is None:
            return self.send(404, {"error": {"message": f"no such path {path}", "type": "not_found"}})
        request = json.loads(body)
        tools = dialect.tools(request)
        history = model.text_of(request.get(dialect.history, []))
        is_over = len(self.provider.requests) >= model.MOST_REQUESTS
        call = None if is_over else model.decide(tools, history)
        self.provider.note(path, tools, body, call)
        number = len(self.provider.requests)
        answer = dialect.answer(request, number, call)
        if not request.get("stream"):
            return self.send(200, answer)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for frame in dialect.frames(answer):
            self.wfile.write(frame.encode())
        self.close_connection = True

    def send(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def seen(name, parameters, **further):
    return {"name": name, "parameters": parameters, **further}


class Chat:
    history = "messages"

    @staticmethod
    def tools(request):
        functions = [tool["function"] for tool in request.get("tools") or [] if tool.get("type") == "function"]
        return [seen(function["name"], function.get("parameters")) for function in functions]

    @staticmethod
    def answer(request, number, call):
        message = {"role": "assistant", "content": None if call else "ALL DONE"}
        if call:
            function = {"name": call[0]["name"], "arguments": json.dumps(call[1])}
            message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {
            "id": f"chat{number}",
            "object": "chat.completion",
            "created": 1,
            "model": request.get("model"),
            "choices": [choice],
            "usage": usage,
        }

    @staticmethod
    def frames(answer):
        choice = answer["choices"][0]
        delta = dict(choice["message"])
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(calls)]
        chunk = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
        last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        for choices, usage in (
            ([{"index": 0, "delta": delta, "finish_reason": None}], None),
            ([last], None),
            ([], answer["usage"]),
        ):
            yield f"data: {json.dumps(chunk | {'choices': choices, 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"


class Responses:
    history = "input"

    @staticmethod
    def tools(request):
        found = []
        for tool in request.get("tools") or []:
            if tool.get("type") == "namespace":
                found += [
                    seen(inner["name"], inner.get("parameters"), namespace=tool["name"]) for inner in tool["tools"]
                ]
            elif "name" in tool:
                found.append(seen(tool["name"], tool.get("parameters")))
        return found

    @staticmethod
    def answer(request, number, call):
        if call:
            item = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": call[0]["name"],
                "arguments": json.dumps(call[1]),
                "status": "completed",
            }
            if "namespace" in call[0]:
                item["namespace"] = call[0]["namespace"]
        else:
            part = {"type": "output_text", "text": "ALL DONE", "annotations": []}
            item = {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        usage = {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": request.get("model"),
            "output": [item],
            "usage": usage,
            "tools": request.get("tools") or [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        }

    @staticmethod
    def frames(answer):
        item = answer["output"][0]
        begun = answer | {"status": "in_progress", "output": [], "usage": None}
        place = {"output_index": 0, "item_id": item["id"]}
        events = [
            ("created", {"response": begun}),
            (
                "output_item.added",
                {
                    "output_index": 0,
                    "item": item
                    | {"status": "in_progress"}
                    | ({"arguments": ""} if "arguments" in item else {"content": []}),
                },
            ),
        ]
        if "arguments" in item:
            events += [
                ("function_call_arguments.delta", place | {"delta": item["arguments"]}),
                ("function_call_arguments.done", place | {"arguments": item["arguments"]}),
            ]
        else:
            part = item["content"][0]
            events += [
                ("content_part.added", place | {"content_index": 0, "part": part | {"text": ""}}),
                ("output_text.delta", place | {"content_index": 0, "delta": part["text"]}),
                ("output_text.done", place | {"content_index": 0, "text": part["text"]}),
                ("content_part.done", place | {"content_index": 0, "part": part}),
            ]
        events += [("output_item.done", {"output_index": 0, "item": item}), ("completed", {"response": answer})]
        for number, (kind, fields) in enumerate(events):
            kind = f"response.{kind}"
            yield f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number} | fields)}\n\n"


class Messages:
    history = "messages"

    @staticmethod
    def tools(request):
        return [seen(tool["name"], tool.get("input_schema")) for tool in request.get("tools") or [] if "name" in tool]

    @staticmethod
    def answer(request, number, call):
        if call:
            block = {"type": "tool_use", "id": f"call_{number}", "name": call[0]["name"], "input": call[1]}
        else:
            block = {"type": "text", "text": "ALL DONE"}
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": [block],
            "stop_reason": "tool_use" if call else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }

    @staticmethod
    def frames(answer):
        block = answer["content"][0]
        is_call = block["type"] == "tool_use"
        delta = (
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            if is_call
            else {"type": "text_delta", "text": block["text"]}
        )
        events = [
            {"type": "message_start", "message": answer | {"content": [], "stop_reason": None}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": block | ({"input": {}} if is_call else {"text": ""}),
            },
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": answer["stop_reason"], "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
        for event in events:
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
