"""OpenAI Agents: an agent that searches its tools on the client's side.

>>> agent = ToolSearchAgent(name="assistant", searchable=tools)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agents import Agent, FunctionTool, Tool, function_tool

from toolscout.adapters._index import ToolIndex, definition

if TYPE_CHECKING:
    from agents import RunContextWrapper

    from toolscout import Catalog


@dataclass
class ToolSearchAgent(Agent[Any]):
    """An agent whose model sees `tool_search`, and of `searchable` what it has found.

    One agent is for one conversation: it remembers what was found. `agent.clone()` makes one that
    has found nothing. Found tools follow those before them, so that the beginning of a prompt stays
    as it was.
    """

    searchable: list[FunctionTool] = field(default_factory=list)
    """The tools that are shown once they are found; those in `tools` always are."""
    catalog: Catalog | None = None
    """Where they are searched; in an own one if not given."""
    limit: int = 5
    """Most tools found at a time."""
    embedder: str | None = None
    """The embedders of the own catalog."""

    def __post_init__(self) -> None:
        """Prepare the search."""
        super().__post_init__()  # type: ignore[no-untyped-call]
        index = ToolIndex(self.catalog, limit=self.limit, embedder=self.embedder)
        by_name = {tool.name: tool for tool in self.searchable}
        definitions = [
            definition(tool.name, tool.description, tool.params_json_schema)
            for tool in self.searchable
        ]
        self._found: dict[str, FunctionTool] = {}

        @function_tool
        async def tool_search(query: str) -> str:
            """Find tools by what they do. They can be called from the next step on.

            Args:
                query: What the tool should do, in a few words.

            """
            names = await asyncio.to_thread(index.find, query, definitions)
            self._found.update((name, by_name[name]) for name in names)
            return f"Found: {', '.join(names)}" if names else "No tool fits; try other words."

        self._search: Tool = tool_search

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """List the tools that the model sees."""
        always = await super().get_all_tools(run_context)
        return [*always, self._search, *self._found.values()]
