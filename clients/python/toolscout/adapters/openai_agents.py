"""OpenAI Agents: an agent that searches its tools on the client's side.

>>> agent = ToolSearchAgent(name="assistant", searchable=tools)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agents import Agent, FunctionTool, Tool, function_tool

from toolscout._tools import definition_of
from toolscout.adapters._index import Shown, ToolIndex

if TYPE_CHECKING:
    from agents import RunContextWrapper

    from toolscout import Catalog
    from toolscout.toolbox import Policy


@dataclass
class ToolSearchAgent(Agent[Any]):
    """An agent whose model sees `tool_search`, and of `searchable` what it has found.

    One agent is for one conversation: it remembers what was found. `agent.clone()` makes one that
    has found nothing. Found tools follow those before them, so that the beginning of a prompt stays
    as it was. They take at most `budget` tokens: the toolbox of the program's agent evicts those
    that were not used for longest.
    """

    searchable: list[FunctionTool] = field(default_factory=list)
    """The tools that are shown once they are found; those in `tools` always are."""
    catalog: Catalog | None = None
    """Where they are searched; in an own one if not given."""
    limit: int = 5
    """Most tools found at a time."""
    budget: int = 8000
    """Most tokens of the found tools."""
    policy: Policy = "lru"
    """Which of them go first: `lru`, `lfu` or `none`."""
    embedder: str | None = None
    """The embedders of the own catalog."""

    def __post_init__(self) -> None:
        """Prepare the search."""
        super().__post_init__()  # type: ignore[no-untyped-call]
        index = ToolIndex(self.catalog, limit=self.limit, embedder=self.embedder)
        by_name = {tool.name: tool for tool in self.searchable}
        definitions = [definition_of(tool) for tool in self.searchable]
        self._by_name = by_name
        self._shown = Shown(index, definitions, budget=self.budget, policy=self.policy)

        @function_tool
        async def tool_search(query: str) -> str:
            """Find tools by what they do. They can be called from the next step on.

            Args:
                query: What the tool should do, in a few words.

            """
            return await asyncio.to_thread(self._shown.search, query)

        self._search: Tool = tool_search

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """List the tools that the model sees."""
        always = await super().get_all_tools(run_context)
        found = [self._used(self._by_name[name]) for name in self._shown.names]
        # What is listed now is for the next answer, whose calls are of another round.
        self._shown.answered(())
        return [*always, self._search, *found]

    def _used(self, tool: FunctionTool) -> FunctionTool:
        """Return a tool that notes its calls."""
        invoke = tool.on_invoke_tool

        async def noted(context: Any, arguments: str) -> Any:
            self._shown.called(tool.name)
            return await invoke(context, arguments)

        return replace(tool, on_invoke_tool=noted)
