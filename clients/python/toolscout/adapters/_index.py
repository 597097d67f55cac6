"""The tools of a framework, found by what they do."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolscout import Catalog, Toolbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolscout.toolbox import Policy

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
        self._indexed: dict[str, Mapping[str, Any]] = {}
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
        """Write what has changed. Comparing with a copy takes a tenth of writing it as JSON."""
        with self._lock:
            changed = {
                name: tool for name, tool in tools.items() if self._indexed.get(name) != tool
            }
            if changed:
                self._catalog.add(list(changed.values()))
                self._indexed.update(copy.deepcopy(changed))

    def toolbox(self, budget: int, policy: Policy) -> Toolbox:
        """Make a toolbox over the catalog that is searched."""
        return Toolbox(self._catalog, budget=budget, policy=policy)

    def ids(self, tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return the id of each tool in the catalog, by the framework's name of it."""
        by_name = {tool["name"]: tool for tool in tools}
        if self._own:
            self._bring_up_to(by_name)
            return {name: name for name in by_name}
        return {name: tool_id for tool_id, name in self._named(by_name).items()}


class Shown:
    """The tools of a framework that a model sees in one conversation, within a token budget."""

    def __init__(
        self,
        index: ToolIndex,
        tools: Sequence[Mapping[str, Any]],
        *,
        budget: int = 8000,
        policy: Policy = "lru",
    ) -> None:
        """Show none of these tools yet."""
        self._index, self._tools = index, tools
        self._toolbox = index.toolbox(budget, policy)

    def search(self, query: str) -> str:
        """Find tools, show them, and return the answer for the model."""
        found = self._index.find(query, self._tools)
        return self.show(found) if found else "No tool fits; try other words."

    def show(self, names: Iterable[str]) -> str:
        """Show tools by name, and return what a model is told of it."""
        ids = self._index.ids(self._tools)
        named = {ids[name]: name for name in names if name in ids}
        injection = self._toolbox.inject(list(named))
        refused = [named[tool_id] for tool_id, _ in injection.refused]
        gone = [name for name, tool_id in ids.items() if tool_id in injection.evicted]
        parts = [
            ("Found", [name for name in named.values() if name not in refused]),
            ("No room for", refused),
            ("Unloaded, and found again by a search", gone),
        ]
        return ". ".join(f"{title}: {', '.join(names)}" for title, names in parts if names)

    @property
    def names(self) -> list[str]:
        """The names of the visible tools, in their order."""
        visible = self._toolbox.ids
        if not visible:
            return []
        by_id = {tool_id: name for name, tool_id in self._index.ids(self._tools).items()}
        return [by_id[tool_id] for tool_id in visible if tool_id in by_id]

    def begin_turn(self) -> None:
        """End the turn before, and begin one: a question of the user."""
        self._toolbox.end_turn()
        self._toolbox.begin_turn()

    def answered(self, called: Iterable[str]) -> None:
        """Note an answer of the model, which ends a round, with the tools that it calls."""
        self._toolbox.tools("names")
        for name in called:
            self.called(name)

    def replay(self, messages: Iterable[Any], search: str) -> Shown:
        """Do again what a conversation in messages of LangChain did, with a tool `search`."""
        for message in messages:
            if message.type == "human":
                self.begin_turn()
            elif message.type == "ai":
                self.answered(call["name"] for call in message.tool_calls)
            elif message.type == "tool" and message.name == search:
                self.show(message.artifact if isinstance(message.artifact, list) else [])
        return self

    def called(self, name: str) -> None:
        """Note a call of a tool."""
        tool_id = self._index.ids(self._tools).get(name, "")
        if tool_id in self._toolbox:
            with self._toolbox.calling(tool_id):
                pass


def _name_among(tools: Mapping[str, Any], *names: str) -> str | None:
    return next((name for name in names if name in tools), None)


def definition(name: str, description: str | None, schema: Any) -> dict[str, Any]:
    """Write a tool in the form of MCP."""
    schema = schema if isinstance(schema, Mapping) else {"type": "object"}
    return {"name": name, "description": description or "", "inputSchema": dict(schema)}
