"""What a client of a profile sees and may call, the same for every client of Python."""

import json


async def print_report(text, tools, own, other, asked):
    """`text` calls a tool and gives the text of its answer, `tools` are those of the list, `asked` what the person was asked."""
    echo = {"text": f"hello {own}"}
    report = {
        "listed": [[tool.name, tool.description] for tool in tools],
        "servers": await text("list_tools", {}),
        "found": await text("tool_search", {"query": "says it again", "limit": 20}),
        "called": await text("call_tool", {"name": f"{own}/echo", "arguments": echo}),
        "other": await text("call_tool", {"name": f"{other}/echo", "arguments": echo}),
        "missing": await text("call_tool", {"name": "none/echo", "arguments": echo}),
        "asked": len(asked),
    }
    print(json.dumps(report))
