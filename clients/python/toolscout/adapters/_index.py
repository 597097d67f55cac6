"""The tools of a framework, found by what they do."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolscout import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_QUERIES = 16
MAX_LIMIT = 50


class ToolIndex:
    """Finds tools by name, among those that it was given or that a catalog has.

    Without a catalog it has one of its own, in a temporary folder. A given catalog is searched as
    it is, among those of its tools that have the names of the framework's, alone or with their
    server.
    """

    def __init__(
        self, catalog: Catalog | None = None, *, limit: int = 5, embedder: str | None = None
    ) -> None:
        """Find at most `limit` tools at a time; `embedder` is that of the own catalog."""
        if not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit is {limit!r}, and must be a number from 1 to {MAX_LIMIT}")
        self.limit = limit
        self._own = catalog is None
        self._catalog = catalog or Catalog.temporary(embedder=embedder)
        self._indexed: dict[str, str] | None = None
        self._names: tuple[frozenset[str], int, dict[str, str]] | None = None
        self._lock = threading.Lock()

    def find(self, queries: str | Sequence[str], tools: Iterable[Mapping[str, Any]]) -> list[str]:
        """Name the tools that fit, best first, among these in the form of MCP."""
        by_name = {tool["name"]: tool for tool in tools}
        queries = [queries] if isinstance(queries, str) else list(queries)[:MAX_QUERIES]
        if not by_name or not any(query.strip() for query in queries):
            return []
        if self._own:
            self._bring_up_to(by_name)
            ids = list(by_name)
            # A part of what is indexed, where another agent has other tools.
            among = ids if len(ids) < len(self._catalog) else None
            return self._catalog.search(queries, limit=self.limit, ids=among).ids
        named = self._named(by_name)
        found = self._catalog.search(queries, limit=MAX_LIMIT, ids=list(named))
        return list(dict.fromkeys(named[hit.id] for hit in found))[: self.limit]

    def _named(self, by_name: Mapping[str, Any]) -> dict[str, str]:
        """Name the tools of the given catalog as the framework does, by id."""
        wanted, version = frozenset(by_name), self._catalog.generation
        with self._lock:
            if self._names is None or self._names[:2] != (wanted, version):
                named = {}
                for tool in self._catalog.tools():
                    name = _name_among(by_name, tool.id, tool.name, tool.model_name)
                    if name:
                        named[tool.id] = name
                self._names = (wanted, version, named)
            named = self._names[2]
        if not named:
            raise LookupError(
                f"{self._catalog!r} has none of the {len(wanted)} tools, such as {min(wanted)!r}; "
                "add them to it, or pass no catalog"
            )
        return named

    def _bring_up_to(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        definitions = {name: json.dumps(tool, default=str) for name, tool in tools.items()}
        with self._lock:
            if self._indexed is None:
                self._indexed = {}
            changed = [
                tools[name]
                for name, definition in definitions.items()
                if self._indexed.get(name) != definition
            ]
            if changed:
                self._catalog.add(changed)
                self._indexed.update(definitions)


def _name_among(tools: Mapping[str, Any], *names: str) -> str | None:
    return next((name for name in names if name in tools), None)


def definition(name: str, description: str | None, schema: Any) -> dict[str, Any]:
    """Write a tool in the form of MCP."""
    schema = schema if isinstance(schema, Mapping) else {"type": "object"}
    return {"name": name, "description": description or "", "inputSchema": dict(schema)}
