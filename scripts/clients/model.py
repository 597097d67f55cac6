"""What the played model does: it runs a command with a tool of the client's own, finds and calls two tools of the
office, calls the first one again, and ends."""

import json
import re

ARCHIVE, CANCEL = "invoice_archive", "shipment_cancel"
QUERIES = {ARCHIVE: "archive an invoice", CANCEL: "cancel a shipment"}
# That of the endpoint, and those of clients.
SEARCHES = ("tool_search", "search_for_tools", "toolscout_search", "toolscout_find_tools", "ToolSearch")
OWN = (
    "bash",
    "execcommand",
    "shell",
    "shellcommand",
    "runshellcommand",
    "executecommand",
    "runterminalcommand",
    "runcommands",
)
MARK = "own-tool-ran"
# The model stops here, whatever the client does.
MOST_REQUESTS = 40


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def own_tool(tools):
    return next((tool for tool in tools if plain(tool["name"]) in OWN), None)


def named(tools, name):
    return next((tool for tool in tools if tool["name"] == name or re.search(rf"[^a-z]{name}$", tool["name"])), None)


def decide(tools, history):
    """The next call as (tool, arguments); None for the last text. `history` is the conversation as JSON text."""
    if not tools:
        return None
    own = own_tool(tools)
    if own and history.count(MARK) < 1:
        return own, command(own)
    done = {name: history.count(f"the office has done {name}") for name in QUERIES}
    for name, wanted in ((ARCHIVE, 1), (CANCEL, 1), (ARCHIVE, 2)):
        if done[name] < wanted:
            return call_or_search(tools, name, history)
    return None


def call_or_search(tools, name, history):
    tool = named(tools, name)
    if tool:
        return tool, {"id": "7"}
    search = next((tool for tool in tools if tool["name"] in SEARCHES), None)
    # A tool that was found and is no longer there is searched again, which the table counts.
    if search and history.count(QUERIES[name]) < 4:
        properties = (search["parameters"] or {}).get("properties", {})
        return search, {"query": QUERIES[name]} | ({"limit": 5} if "limit" in properties else {})
    return None


def command(tool):
    """Arguments with which a tool of the client prints a line."""
    schema = tool["parameters"] or {}
    properties = schema.get("properties", {})
    arguments = {}
    for name in schema.get("required", []):
        kind = properties.get(name, {}).get("type")
        arguments[name] = {"boolean": False, "number": 1000, "integer": 1000, "array": []}.get(kind, "prints a line")
    for name in ("command", "cmd", "commands"):
        if name in properties:
            is_list = properties[name].get("type") == "array"
            text = f"echo {MARK}"
            arguments[name] = (["bash", "-c", text] if name == "command" else [text]) if is_list else text
    return arguments


def text_of(value):
    """A conversation as text."""
    return json.dumps(value, ensure_ascii=False)
