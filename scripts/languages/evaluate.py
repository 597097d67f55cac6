"""How well a packed table finds tools: `python evaluate.py TABLE REQUESTS TOOLS`.

REQUESTS has a line of JSON for each request: `query`, `relevant` (ids of tools), and `language` (or `lang`) where there
are several. TOOLS has a line for each tool: `id` or `server` and `name`, `description`, and `inputSchema`. A tool is one
vector, of "name in words: description. names of parameters"."""
import json
import re
import sys
from collections import defaultdict

import numpy as np

from table import Table


def in_words(name):
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", name)
    return re.sub(r"[\s_\-./:{}]+", " ", name).strip()


def tool_text(name, description, parameters):
    return f"{in_words(name)}: {description}. {' '.join(map(in_words, parameters))}"


def success(table, requests, tools, k=5):
    """{language: (requests, share with a right tool among the first k, mean reciprocal rank)}."""
    names = list(tools)
    matrix = np.array([table.embed(tools[name]) for name in names])
    found = defaultdict(list)
    for language, query, relevant in requests:
        order = np.argsort(-(matrix @ table.embed(query)), kind="stable")
        found[language].append(1 + next(rank for rank, i in enumerate(order) if names[i] in relevant))
    return {language: (len(ranks), np.mean(np.array(ranks) <= k), np.mean(1 / np.array(ranks))) for language, ranks in found.items()}


def main(table_path, requests_path, tools_path):
    lines = lambda path: [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    requests = [(r.get("language") or r.get("lang") or "-", r["query"], set(r["relevant"])) for r in lines(requests_path) if r["relevant"]]
    tools = {}
    for tool in lines(tools_path):
        properties = (tool.get("inputSchema") or {}).get("properties") or {}
        identity = f"{tool['server']}/{tool['name']}" if tool.get("server") else tool["name"]
        tools[identity] = tool_text(tool["name"], tool.get("description") or "", properties)
    result = success(Table(open(table_path, "rb").read()), requests, tools)
    for language, (count, share, reciprocal) in result.items():
        print(f"{language}: success@5 {share:.3f}, reciprocal rank {reciprocal:.3f}, {count} requests")


if __name__ == "__main__":
    main(*sys.argv[1:])
