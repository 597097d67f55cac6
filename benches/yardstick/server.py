"""The yardstick: a minimal tool-search server in Python, FastAPI over bm25s, with the same request and answer shape.

    python server.py TOOLS_NDJSON PORT
"""

import json
import re
import sys

import bm25s
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def tokens(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def load(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


class Search(BaseModel):
    query: str
    mode: str = "lexical"
    k: int = 5


def build(tools: list[dict]) -> FastAPI:
    index = bm25s.BM25()
    index.index([tokens(f"{tool['name']} {tool.get('description', '')}") for tool in tools], show_progress=False)
    app = FastAPI()

    @app.post("/v1/search")
    def search(request: Search) -> dict:
        k = min(request.k, len(tools))
        found, scores = index.retrieve([tokens(request.query)], k=k, show_progress=False)
        pairs = zip(found[0], scores[0])
        hits = [
            {"id": tools[at]["name"], "description": tools[at].get("description", ""), "score": float(score)}
            for at, score in pairs
            if score > 0
        ]
        return {"hits": hits}

    return app


if __name__ == "__main__":
    uvicorn.run(build(load(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
