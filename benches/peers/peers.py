"""Other engines for Python, each used as its documentation shows, and what they take.

    python peers.py ENGINE TOOLS QUERIES WARM_UP HITS

TOOLS is JSONL as `toolscout export` writes it, with an "id" in each line, QUERIES a JSONL file with a "query" in each line, of
which the first WARM_UP are not timed. Prints one line of JSON, as scripts/other_engines.py says.
"""

import asyncio
import importlib
import json
import re
import statistics
import sys
import time
from pathlib import Path


def lines(path):
    """Reads a file of JSON lines."""
    with Path(path).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def text_of(tool):
    """What is indexed of a tool: its name with its server, its description, the names of its parameters."""
    parameters = (tool.get("inputSchema") or {}).get("properties") or {}
    return " ".join([tool["id"], tool.get("description", ""), *parameters])


def with_bm25s(tools, hits):
    import bm25s

    definitions = lines(tools)
    corpus, ids = [text_of(tool) for tool in definitions], [tool["id"] for tool in definitions]
    hits = min(hits, len(corpus))
    index = bm25s.BM25()
    index.index(bm25s.tokenize(corpus, stopwords="en", show_progress=False), show_progress=False)

    def search(query):
        # Words in place of numbers: a third less time, and the same answers.
        tokens = bm25s.tokenize(query, stopwords="en", show_progress=False, return_ids=False)
        found = index.retrieve(tokens, corpus=ids, k=hits, show_progress=False)
        # Where fewer tools share a word with the request, it fills up with others.
        return [tool for tool, score in zip(found.documents[0], found.scores[0]) if score > 0]

    return search


def with_callbus(tools, hits):
    from callbus.adapters.bm25 import BM25Scorer
    from callbus.domain import Query, Tool

    scorer = BM25Scorer()
    scorer.index(Tool(id=tool["id"], documentation=text_of(tool)) for tool in lines(tools))
    return lambda query: scorer.rank([Query(id="q", text=query, qrels={})], hits)[0].tool_ids


def with_ratel(tools, hits):
    from ratel_ai import ExecutableTool, ToolCatalog

    catalog = ToolCatalog()
    executable = [
        ExecutableTool(
            id=tool["id"],
            name=tool["name"],
            description=tool.get("description", ""),
            input_schema=tool.get("inputSchema") or {},
            output_schema={},
            execute=lambda arguments: arguments,
        )
        for tool in lines(tools)
    ]

    # It wants to be called within an event loop.
    async def register():
        await catalog.register(executable)

    asyncio.run(register())
    return lambda query: [hit.tool_id for hit in catalog.search(query, hits)]


def with_fastmcp(tools, hits):
    from fastmcp import Client, FastMCP
    from fastmcp.server.transforms.search import BM25SearchTransform
    from fastmcp.tools import Tool

    class Definition(Tool):
        """A tool that is found and never called."""

    server = FastMCP("peers", transforms=[BM25SearchTransform(max_results=hits)])
    ids = {}
    for number, tool in enumerate(lines(tools)):
        # What MCP allows as a name, and no other tool's.
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", tool["id"])[:100]
        name = f"{name}_{number}" if name in ids else name
        ids[name] = tool["id"]
        schema = tool.get("inputSchema") or {"type": "object"}
        server.add_tool(Definition(name=name, description=tool.get("description", ""), parameters=schema))
    loop = asyncio.new_event_loop()
    client = Client(server)
    loop.run_until_complete(client.__aenter__())

    def search(query):
        answer = loop.run_until_complete(client.call_tool("search_tools", {"query": query}))
        # Where it finds nothing, there is no content.
        return [ids[tool["name"]] for content in answer.content for tool in json.loads(content.text)]

    # The first search builds the index.
    search("anything")
    return search


ENGINES = {"bm25s": with_bm25s, "callbus": with_callbus, "fastmcp": with_fastmcp, "ratel": with_ratel}
MODULES = {
    "bm25s": ["bm25s"],
    "callbus": ["callbus.adapters.bm25", "callbus.domain"],
    "fastmcp": ["fastmcp", "fastmcp.server.transforms.search"],
    "ratel": ["ratel_ai"],
}


def measure(engine, tools, queries, warm_up, hits):
    """What an engine takes in this process."""
    # Loading the engine is not part of indexing.
    for module in MODULES[engine]:
        importlib.import_module(module)
    start = time.perf_counter()
    search = ENGINES[engine](tools, hits)
    built = time.perf_counter() - start
    times, found = [], []
    for query in lines(queries):
        start = time.perf_counter()
        answer = search(query["query"])
        times.append((time.perf_counter() - start) * 1e3)
        found.append([str(tool) for tool in answer])
    return {"build_s": built, "search_ms": statistics.median(times[warm_up:]), "hits": found}


if __name__ == "__main__":
    engine, tools, queries, warm_up, hits = sys.argv[1:]
    print(json.dumps(measure(engine, tools, queries, int(warm_up), int(hits))))
