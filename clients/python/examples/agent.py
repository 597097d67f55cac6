"""An agent over 2,000 tools: functions, an OpenAPI document, and the tools of MCP servers.

pip install toolscout
python agent.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toolscout

Message = dict[str, Any]
Model = Callable[[list[Message], list[dict[str, Any]]], Message]


def send_email(to: str, text: str) -> str:
    """Send an email.

    Args:
        to: The address of the recipient.
        text: What it says.

    """
    return f"sent {text!r} to {to}"


def order_status(id: str) -> dict[str, str]:
    """Call the operation of the shop, as an HTTP client would."""
    return {"id": id, "status": "shipped"}


SHOP = {
    "openapi": "3.1.0",
    "info": {"title": "shop", "version": "1"},
    "servers": [{"url": "https://shop.test"}],
    "paths": {
        "/orders/{id}": {
            "get": {
                "operationId": "showOrder",
                "tags": ["orders"],
                "summary": "Shows an order and where it is.",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
            }
        },
        "/admin/orders": {"delete": {"operationId": "deleteOrders", "tags": ["admin"]}},
    },
}


def mcp_tools() -> list[dict[str, Any]]:
    """Make what `tools/list` of many MCP servers answers."""
    verbs = ["create", "delete", "list", "update", "archive", "export", "rename", "share"]
    things = [f"{kind} {part}" for kind in ("sales", "staff", "stock", "travel", "garden")
              for part in ("invoice", "report", "photo", "contract", "meeting")]  # fmt: skip
    return [
        {"name": f"{verb}_{thing.replace(' ', '_')}_{number}", "description": f"{verb}s a {thing}"}
        for verb in verbs
        for thing in things
        for number in range(10)
    ]


def ask(question: str, model: Model, toolbox: toolscout.Toolbox) -> str:
    """Answer a question: the whole agent."""
    messages: list[Message] = [{"role": "user", "content": question}]
    with toolbox.turn():
        while True:
            reply = model(messages, toolbox.tools("openai"))
            messages.append(reply)
            if not reply.get("tool_calls"):
                return str(reply["content"])
            for call in reply["tool_calls"]:
                function = call["function"]
                try:
                    result = toolbox.call(function["name"], function["arguments"])
                except Exception as error:
                    # The text is for the model: what failed, or how to correct its arguments.
                    result = error
                content = {"tool_call_id": call["id"], "content": str(result)}
                messages.append({"role": "tool", **content})


def played(messages: list[Message], tools: list[dict[str, Any]]) -> Message:
    """Play a model: it searches, calls what it finds, and says what came of it."""
    visible = [tool["function"]["name"] for tool in tools]
    question = messages[0]["content"]
    if messages[-1]["role"] == "tool" and "loaded" not in messages[-1]["content"]:
        return {"role": "assistant", "content": f"Done: {messages[-1]['content']}"}
    wanted, arguments = (
        ("send_email", '{"to": "ada@example.com", "text": "Hello"}')
        if "mail" in question
        else ("shop__showOrder", '{"id": "7"}')
    )
    if wanted not in visible:
        wanted, arguments = "tool_search", f'{{"query": "{question}"}}'
    function = {"name": wanted, "arguments": arguments}
    call = {"id": str(len(messages)), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def main() -> None:
    """Show the agent at work."""
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        catalog.add(send_email)
        catalog.add(SHOP, exclude="admin")
        catalog.add(mcp_tools(), server="company")
        functions: dict[str, Any] = {"send_email": send_email, "shop/showOrder": order_status}
        toolbox = toolscout.Toolbox(catalog, budget=2000, functions=functions)
        print(len(catalog), "tools")
        print(ask("Send a mail to Ada.", played, toolbox))
        print(ask("Where is my order 7?", played, toolbox))
        print(toolbox)


if __name__ == "__main__":
    main()
