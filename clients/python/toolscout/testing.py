"""Doubles for tests of code that uses a catalog or a client: scripted answers, and no engine.

>>> from toolscout.testing import ScriptedCatalog
>>> catalog = ScriptedCatalog({"report a bug": ["github/create_issue"]})
>>> catalog.search("report a bug").ids
['github/create_issue']
>>> catalog.calls
[Call(method='search', arguments={'query': 'report a bug'})]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolscout._errors import Error
from toolscout._tools import definition_of, items_of

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self

    from toolscout._toolscout import ToolInput
    from toolscout.client import AsyncClient, Client

Answers = Mapping[str, "Sequence[str] | Exception"]
"""The ids that a query finds, best first, or what it raises. `"*"` answers every other query."""


@dataclass(frozen=True)
class Call:
    """A call of a double."""

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScriptedTool:
    """A tool of a double."""

    id: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})

    @property
    def name(self) -> str:
        """The name within its server."""
        return self.id.rpartition("/")[2]

    @property
    def server(self) -> str:
        """The server; empty for a tool without one."""
        return self.id.rpartition("/")[0]

    @property
    def model_name(self) -> str:
        """The name for a model."""
        return self.id.replace("/", "__")


@dataclass(frozen=True)
class ScriptedHit(ScriptedTool):
    """A hit of a double."""

    score: float = 1.0

    @property
    def tool(self) -> ScriptedTool:
        """The tool."""
        return ScriptedTool(self.id, self.description, self.input_schema)


@dataclass(frozen=True)
class ScriptedResults(Sequence[ScriptedHit]):
    """The answer to a search of a double."""

    queries: list[str]
    hits: tuple[ScriptedHit, ...]

    @property
    def ids(self) -> list[str]:
        """The ids of the hits, best first."""
        return [hit.id for hit in self.hits]

    def tools(self, format: str = "openai") -> list[Any]:
        """Write the found tools: `openai`, `anthropic` or `names`."""
        if format == "names":
            return [hit.model_name for hit in self.hits]
        written: list[Any] = []
        for hit in self.hits:
            fields = {"name": hit.model_name, "description": hit.description}
            if format == "openai":
                function = {**fields, "parameters": hit.input_schema}
                written.append({"type": "function", "function": function})
            elif format == "anthropic":
                written.append({**fields, "input_schema": hit.input_schema})
            else:
                raise Error("invalid_query", f"a double does not write {format!r}")
        return written

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]


class _Script:
    """Answers, the tools that are known, and the calls."""

    def __init__(self, answers: Answers, tools: ToolInput) -> None:
        self.answers = dict(answers)
        self.tools: dict[str, ScriptedTool] = {}
        self.calls: list[Call] = []
        self.add(tools, None)

    def add(self, tools: ToolInput, server: str | None) -> list[str]:
        added = []
        for item in items_of(tools):
            fields = definition_of(item)
            name = str(fields["name"])
            tool_id = f"{server}/{name}" if server else name
            schema = fields.get("inputSchema") or fields.get("input_schema") or {"type": "object"}
            self.tools[tool_id] = ScriptedTool(tool_id, str(fields.get("description", "")), schema)
            added.append(tool_id)
        return added

    def find(self, queries: Sequence[str], limit: int | None) -> tuple[ScriptedHit, ...]:
        found: dict[str, None] = {}
        for query in queries:
            answer = self.answers.get(query, self.answers.get("*"))
            if answer is None:
                known = ", ".join(repr(text) for text in self.answers) or "nothing"
                raise AssertionError(f"nobody scripted an answer to {query!r}; there is {known}")
            if isinstance(answer, Exception):
                raise answer
            found.update(dict.fromkeys(answer))
        hits = []
        for place, tool_id in enumerate(list(found)[:limit]):
            tool = self.tools.get(tool_id, ScriptedTool(tool_id))
            score = round(1 / (1 + place), 4)
            hits.append(ScriptedHit(tool.id, tool.description, tool.input_schema, score))
        return tuple(hits)


class ScriptedCatalog:
    """Stands for a `Catalog`: `search` answers by a script, and `calls` has what was called."""

    def __init__(self, answers: Answers | None = None, tools: ToolInput = ()) -> None:
        """Answer these queries. `tools` have the descriptions and schemas of the hits."""
        self._script = _Script(answers or {}, tools)

    @property
    def calls(self) -> list[Call]:
        """What was called, in order."""
        return self._script.calls

    def _note(self, method: str, **arguments: Any) -> None:
        given = {name: value for name, value in arguments.items() if value is not None}
        self._script.calls.append(Call(method, given))

    def search(
        self, query: str | Sequence[str], *, limit: int | None = None, **options: Any
    ) -> ScriptedResults:
        """Answer as scripted; `AssertionError` for a query without an answer."""
        self._note("search", query=query, limit=limit, **options)
        queries = [query] if isinstance(query, str) else list(query)
        return ScriptedResults(queries, self._script.find(queries, limit))

    def add(self, tools: ToolInput, *, server: str | None = None, **options: Any) -> list[str]:
        """Know these tools, and return their ids."""
        self._note("add", server=server, **options)
        return self._script.add(tools, server)

    def get(self, id: str) -> ScriptedTool | None:
        """Return a known tool."""
        self._note("get", id=id)
        return self._script.tools.get(id)

    def feedback(self, results: ScriptedResults, tool: str) -> dict[str, bool]:
        """Note what was used."""
        self._note("feedback", queries=results.queries, tool=tool)
        return {"recorded": True, "remembered": True}

    def tools(self) -> Iterator[ScriptedTool]:
        """Iterate over the known tools."""
        return iter(self._script.tools.values())

    def close(self) -> None:
        """Do nothing."""

    def __len__(self) -> int:
        return len(self._script.tools)

    def __bool__(self) -> bool:
        """Return true: an empty catalog is a catalog."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ScriptedCatalog(answers={len(self._script.answers)}, tools={len(self)})"


class ScriptedServer:
    """Stands for a server: real clients, and no network.

    `client()` and `async_client()` speak with it. Searches answer by the script, and `answers_to`
    adds the JSON of any other request.
    """

    def __init__(self, answers: Answers | None = None, tools: ToolInput = ()) -> None:
        """Answer these queries. `tools` have the descriptions of the hits."""
        self._script = _Script(answers or {}, tools)
        self._others: dict[tuple[str, str], tuple[int, Any]] = {}

    @property
    def calls(self) -> list[Call]:
        """What was asked: `METHOD /path`, with the body."""
        return self._script.calls

    def answers_to(self, method: str, path: str, answer: Any, *, status: int = 200) -> Self:
        """Answer a request, such as `GET`, `/v1/stats`, with this JSON."""
        self._others[method, path] = (status, answer)
        return self

    def client(self, **options: Any) -> Client:
        """Make a client of it."""
        import httpx

        from toolscout.client import Client

        transport = httpx.MockTransport(self._handle)
        return Client("http://scripted.test", transport=transport, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """Make a client for asyncio."""
        import httpx

        from toolscout.client import AsyncClient

        transport = httpx.MockTransport(self._handle)
        return AsyncClient("http://scripted.test", transport=transport, **options)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        import httpx

        path = request.url.path
        body = json.loads(request.content) if request.content else {}
        arguments = body if isinstance(body, dict) else {"items": body}
        self._script.calls.append(Call(f"{request.method} {path}", arguments))
        known = self._others.get((request.method, path))
        if known:
            return httpx.Response(known[0], json=known[1])
        if request.method == "POST" and path.endswith("/search"):
            queries = body.get("queries") or [body["query"]]
            return httpx.Response(200, json=self._searched(queries, body.get("k")))
        if request.method == "POST" and path.endswith("/feedback"):
            return httpx.Response(201, json={"recorded": True, "remembered": "query" in body})
        raise AssertionError(
            f"nobody scripted an answer to {request.method} {path}; answers_to(…) adds one"
        )

    def _searched(self, queries: list[str], limit: int | None) -> dict[str, Any]:
        hits = [
            {
                "id": hit.id,
                "name": hit.name,
                "server": hit.server,
                "description": hit.description,
                "score": hit.score,
                "matched_queries": [0],
            }
            for hit in self._script.find(queries, limit)
        ]
        return {
            "hits": hits,
            "mode": "hybrid",
            "variant": "scripted",
            "embedders": [],
            "generation": 1,
            "request_id": "scripted",
            "feedback_token": f"scripted-{len(self._script.calls)}",
            "took_ms": {},
        }
