"""Pydantic AI: a strategy of its tool search.

>>> agent = Agent(model, tools=[Tool(f, defer_loading=True)], capabilities=[tool_search()])
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import ToolSearch

from toolscout.adapters._index import ToolIndex, definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.tools import ToolDefinition

    from toolscout import Catalog


def tool_search(
    catalog: Catalog | None = None, *, limit: int = 5, embedder: str | None = None
) -> ToolSearch[Any]:
    """Search the deferred tools of an agent: a capability for `Agent(capabilities=[…])`.

    The framework keeps what was found in the messages, and shows it for as long as they have it.
    """
    index = ToolIndex(catalog, limit=limit, embedder=embedder)

    async def search(
        _: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        definitions = [
            definition(tool.name, tool.description, tool.parameters_json_schema) for tool in tools
        ]
        return await asyncio.to_thread(index.find, queries, definitions)

    return ToolSearch(strategy=search, max_results=limit)
